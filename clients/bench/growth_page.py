"""What a cost does as one thing grows: a table, and a plot of each figure that should stay flat. PURE.

Plots are Mermaid's `xychart-beta`, which GitHub draws. They begin at zero: what is flat looks flat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from clients.grid import grid

STYLE = '%%{init: {"themeVariables": {"xyChart": {"plotColorPalette": "#2f81f7"}}}}%%'
"""The default's line is hardly seen on white."""


@dataclass(frozen=True, slots=True)
class Plot:
    """One line, from left to right; a place without a figure is left out."""

    title: str
    across: str
    """What grows, and its unit."""
    places: tuple[str, ...]
    """As many as `heights`, evenly spaced whatever they say."""
    up: str
    """What is measured, and its unit."""
    heights: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """One thing that grows, as it was measured."""

    against: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    plots: tuple[Plot, ...]


def markdown(run: dict[str, Any]) -> str:
    """A kept run of `bench growth`; raises `KeyError` for a document that is none."""
    environment = run["environment"]
    parts = [
        f"### {run['title']}\n",
        f"Commit {environment['commit']}, {environment['machine']}.\n",
        grid(run["columns"], run["rows"]),
        *(chart(Plot(**plot)) for plot in run["plots"]),
    ]
    return "\n".join(parts)


def chart(plot: Plot) -> str:
    """A block that draws itself; empty where nothing was measured."""
    told = [(at, high) for at, high in zip(plot.places, plot.heights, strict=True) if high is not None]
    if not told:
        return ""
    places = ", ".join(f'"{at}"' for at, _ in told)
    heights = ", ".join(f"{high:.4g}" for _, high in told)
    return (
        f"```mermaid\n{STYLE}\nxychart-beta\n"
        f'    title "{plot.title}"\n'
        f'    x-axis "{plot.across}" [{places}]\n'
        f'    y-axis "{plot.up}" 0 --> {top(max(high for _, high in told)):g}\n'
        f"    line [{heights}]\n```\n"
    )


def top(highest: float) -> float:
    """Where an axis ends: at least a tenth above the highest, in two digits."""
    if highest <= 0:
        return 1.0
    step = 10.0 ** (math.floor(math.log10(highest)) - 1)
    return math.ceil(1.1 * highest / step) * step
