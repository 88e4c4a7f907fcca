"""Rows as a Markdown table. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def grid(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """`columns`, then a line for each of `rows`; ends with a line feed."""
    lines: list[Sequence[object]] = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
