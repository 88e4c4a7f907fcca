"""`bench table F...`: kept runs of `bench live` as one Markdown table, for the README. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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


def table(runs: Sequence[dict[str, Any]]) -> str:
    """One row a run; seconds, percent, MiB. Raises `KeyError` for a document that is no live run."""
    lines = [HEADER, tuple("---" for _ in HEADER), *map(_row, runs)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


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
