"""`bench table F...`: kept runs as Markdown: those of `bench live` one table, each of `bench growth` a table
and its plots. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clients.grid import grid

from . import growth_page
from .report import number

HEADER = (
    "model",
    "streams at once",
    "audio",
    "WER live / offline",
    "committed p50 / p95 / p99 / max",
    "first text p50",
    "final p50",
    "revised",
    "coverage",
    "server CPU per audio s",
    "RSS max",
    "faults",
    "commit",
)


def page(runs: Sequence[dict[str, Any]]) -> str:
    """All of them, the live ones first. Raises `KeyError` for a document that is of neither kind."""
    grown = [growth_page.markdown(run) for run in runs if run.get("bench") == "growth"]
    live = [run for run in runs if run.get("bench") != "growth"]
    return "\n".join([*([table(live)] if live else []), *grown])


def table(runs: Sequence[dict[str, Any]]) -> str:
    """One row a run; seconds, percent, MiB. Raises `KeyError` for a document that is no live run."""
    return grid(HEADER, map(_row, runs))


def _row(run: dict[str, Any]) -> tuple[str, ...]:
    total, settings = run["total"], run["settings"]
    commit = total["commit"]
    return (
        str(settings["served_model"]),
        str(settings["streams"]),
        f"{total['audio_s'] / 60:.1f} min",
        f"{_percent(total['wer_live'])} / {_percent(total['wer_offline'])} %",
        " / ".join(number(commit[name]) for name in ("p50", "p95", "p99", "max")) + " s",
        f"{number(total['first_text']['p50'])} s",
        f"{number(total['final']['p50'])} s",
        f"{total['revised']} of {total['words']}",
        f"{_percent(total['coverage'])} %",
        f"{number(total['cpu_s_per_audio_s'], 3)} s",
        f"{number(total['rss_max_mib'], 0)} MiB",
        str(total["failures"]),
        str(run["environment"]["commit"]),
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f}"
