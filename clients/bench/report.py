"""A run as one JSON document and one page of tables; both come from the same values."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from clients.delays import Delays
from clients.stats import Summary, summarize

from .evaluate import Scored
from .meter import Meter
from .scoring import Errors

PACKAGES = (
    "seamscribe",
    "faster-whisper",
    "ctranslate2",
    "onnxruntime",
    "av",
    "numpy",
    "soxr",
    "starlette",
    "uvicorn",
    "websockets",
    "jiwer",
    "whisper-normalizer",
)


def environment() -> dict[str, Any]:
    """What was measured, on what: commit, versions, machine."""
    return {
        "commit": commit(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {cpu_name()}",
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
    }


def told(options: argparse.Namespace) -> dict[str, Any]:
    """The options that a run was given, as plain values: all but where things are."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(options).items()
        if name not in {"run", "json", "audio"} and value not in (None, [])
    }


def commit() -> str:
    """The checkout's commit, marked where the tree differs from it; "unknown" outside one."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + (
            "+changes" if git("status", "--porcelain", "-uno") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def cpu_name() -> str:
    """The processor's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class Total:
    """All streams of a run together."""

    streams: int
    audio_s: float
    failures: int
    """Streams with any fault: no receipt, a gap, a broken promise."""
    live: Errors
    offline: Errors | None
    words: int
    revised: int
    coverage: float
    """Share of all samples, sent or not, that became text or silence."""
    commit: Summary
    commit_matched: Summary
    commit_own: Summary
    first_text: Summary
    final: Summary
    rtf: Summary
    send_lag_s: float
    cpu_s_per_audio_s: float | None
    rss_start_mib: float | None
    rss_end_mib: float | None
    rss_max_mib: float | None

    @property
    def revision_rate(self) -> float:
        return self.revised / max(self.words, 1)


def total(rows: Sequence[Scored], meter: Meter | None) -> Total:
    """Sum up; rates come from summed counts, never from averaged rates."""
    delays = sum((row.delays for row in rows), Delays([], [], []))
    audio_s = sum(row.seconds for row in rows)
    samples = sum(row.samples for row in rows)
    offline = [row.offline for row in rows if row.offline is not None]
    return Total(
        streams=len(rows),
        audio_s=audio_s,
        failures=sum(bool(row.faults) for row in rows),
        live=sum((row.live for row in rows), Errors()),
        offline=sum(offline, Errors()) if len(offline) == len(rows) else None,
        words=sum(row.words for row in rows),
        revised=sum(row.revised for row in rows),
        coverage=1 - sum(row.gap_samples for row in rows) / max(samples, 1),
        commit=summarize(delays.commit),
        commit_matched=summarize([d for row in rows for d in row.commit_matched]),
        commit_own=summarize([d for row in rows for d in row.commit_own]),
        first_text=summarize(delays.first_text),
        final=summarize(delays.final),
        rtf=summarize([row.rtf for row in rows]),
        send_lag_s=max((row.send_lag_s for row in rows), default=0.0),
        cpu_s_per_audio_s=meter.cpu_s / audio_s if meter and audio_s else None,
        rss_start_mib=meter.first.rss_mib if meter else None,
        rss_end_mib=meter.last.rss_mib if meter else None,
        rss_max_mib=meter.max_rss_mib if meter else None,
    )


@dataclass(frozen=True, slots=True)
class Target:
    """One figure and what it should be."""

    name: str
    value: float | None
    bound: float

    @property
    def met(self) -> bool:
        return self.value is not None and self.value <= self.bound

    @property
    def mark(self) -> str:
        """Whether it was met, as a console shows it."""
        return "met" if self.met else "[bold red]missed[/]"

    @property
    def line(self) -> str:
        """All of it, as a console shows it."""
        return f"{self.name}: {number(self.value, 3)} (at most {self.bound:g}) {self.mark}"


def targets(found: Total, factor: float) -> list[Target]:
    """What one stream on this engine should reach; `factor` widens the delays for several."""
    over = found.live.rate - found.offline.rate if found.offline else None
    return [
        Target("word committed p50, s", found.commit.p50, 1.5 * factor),
        Target("word committed p95, s", found.commit.p95, 3.0 * factor),
        Target("first text p50, s", found.first_text.p50, 0.7 * factor),
        Target("final after pause p50, s", found.final.p50, 0.8 * factor),
        Target("live WER above offline, points", None if over is None else 100 * over, 0.5),
        Target("revision rate of committed words", found.revision_rate, 0.0),
        Target("share of samples not covered", 1 - found.coverage, 0.0),
        Target("streams with a fault", float(found.failures), 0.0),
    ]


def show(rows: Sequence[Scored], found: Total, goals: Sequence[Target], settings: dict[str, Any]) -> None:
    """Print the page."""
    console = Console(highlight=False)
    console.print(", ".join(f"{key} {value}" for key, value in settings.items()), markup=False)
    console.print(_streams(rows))
    console.print(_delays(found))
    console.print(_figures(found))
    table = Table("target", "measured", "bound", "", title="Targets", title_justify="left")
    for goal in goals:
        table.add_row(goal.name, number(goal.value, 3), number(goal.bound, 3), goal.mark)
    console.print(table)
    show_faults(console, [f"{row.name}: {fault}" for row in rows for fault in row.faults])


def show_faults(console: Console, faults: Sequence[str], most: int | None = None) -> None:
    """A red line each; of more than `most` how many more."""
    for fault in faults[:most]:
        console.print(fault, style="red", markup=False)
    if most is not None and len(faults) > most:
        console.print(f"and {len(faults) - most} more faults", style="red")


def figures_table(title: str, first: str, *names: str) -> Table:
    """Without rows: texts in the first column, figures in the others."""
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    for name in names:
        table.add_column(name, justify="right")
    return table


def delays_table(title: str, first: str, rows: Sequence[tuple[str, Summary]]) -> Table:
    """Seconds, a line each."""
    table = figures_table(title, first, "count", "mean", "p50", "p95", "p99", "max")
    for name, row in rows:
        table.add_row(name, str(row.count), *map(number, (row.mean, row.p50, row.p95, row.p99, row.max)))
    return table


def _streams(rows: Sequence[Scored]) -> Table:
    names = ("s", "words", "WER live %", "offline %", "commit p50", "p95", "first p50", "faults")
    table = figures_table("Streams", "stream", *names)
    for row in rows:
        commit = summarize(row.delays.commit)
        table.add_row(
            row.name,
            f"{row.seconds:.0f}",
            str(row.words),
            f"{100 * row.live.rate:.2f}",
            f"{100 * row.offline.rate:.2f}" if row.offline else "-",
            number(commit.p50),
            number(commit.p95),
            number(summarize(row.delays.first_text).p50),
            str(len(row.faults)),
        )
    return table


def _delays(found: Total) -> Table:
    rows = (
        ("word committed after its end", found.commit),
        ("  of these, end by offline alignment", found.commit_matched),
        ("  of these, end by the service", found.commit_own),
        ("first text after speech starts", found.first_text),
        ("final after the pause is known", found.final),
        ("receipt per second of audio (RTF)", found.rtf),
    )
    return delays_table("Delays, seconds", "", rows)


def _figures(found: Total) -> Table:
    table = Table("figure", "value", title="Whole run", title_justify="left", show_header=False)
    errors = found.live
    table.add_row("audio", f"{found.audio_s:.0f} s in {found.streams} streams, {found.failures} with a fault")
    table.add_row(
        "WER live",
        f"{100 * errors.rate:.2f} % of {errors.length} ({errors.substitutions} sub, {errors.deletions} del, "
        f"{errors.insertions} ins)",
    )
    if found.offline:
        table.add_row("WER offline", f"{100 * found.offline.rate:.2f} %, beam 5, whole file")
    table.add_row("committed words revised", f"{found.revised} of {found.words}")
    table.add_row("ledger coverage", f"{100 * found.coverage:.3f} %")
    table.add_row("server CPU per audio second", f"{number(found.cpu_s_per_audio_s, 3)} s")
    table.add_row(
        "server RSS start / end / max",
        " / ".join(number(v, 0) for v in (found.rss_start_mib, found.rss_end_mib, found.rss_max_mib))
        + " MiB",
    )
    table.add_row("worst lateness of sending", f"{found.send_lag_s:.3f} s")
    return table


def number(value: float | None, digits: int = 2) -> str:
    """A figure, or a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"


def document(
    bench: str, settings: dict[str, Any], found: Total, goals: Sequence[Target], rows: Sequence[Scored]
) -> dict[str, Any]:
    """Everything as plain values."""
    return {
        "bench": bench,
        "environment": environment(),
        "settings": settings,
        "total": {
            **asdict(found),
            "wer_live": found.live.rate,
            "wer_offline": found.offline.rate if found.offline else None,
            "revision_rate": found.revision_rate,
        },
        "targets": [{**asdict(goal), "met": goal.met} for goal in goals],
        "streams": [asdict(row) for row in rows],
    }


def write_json(path: Path, body: dict[str, Any]) -> None:
    """Keep a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(body, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
