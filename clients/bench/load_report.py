"""What a run of `bench load` comes to: figures, targets, one page. PURE but for printing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from clients.audio import RATE
from clients.stats import Summary, summarize

from .load import Heard, Load
from .meter import Meter
from .report import Target, delays_table, environment, number, show_faults
from .scoring import Errors

COMMIT_S = 3.0
SHOWN_FAULTS = 20


@dataclass(frozen=True, slots=True)
class Figures:
    """Delays in seconds, of the whole run; `commit` of the time in which all streams were live."""

    streams: int
    processes: int
    steady_s: float
    """How long all were live at once."""
    audio_s: float
    words: int
    commit: Summary
    commit_all: Summary
    first_text: Summary
    final: Summary
    errors: Errors
    revised: int
    coverage: float
    updates_per_s: float
    """New states of segments, a stream and second: refreshes that changed something."""
    lag: Summary
    """Of each stream the worst lateness of its sending: far above 0.1 s the speakers had too little time."""
    resumes: int
    faults: int
    cpu_s_per_audio_s: float | None
    """Of the server and all it started; a stream needs so many cores."""
    bench_cpu_s_per_audio_s: float
    rss_max_mib: float | None


def figures(found: Load, meter: Meter | None) -> Figures:
    """Sum up; rates come from summed counts."""
    heard = found.heard
    since, until = steady(heard)
    audio_s = sum(one.sent for one in heard) / RATE
    samples = max(1, sum(one.sent for one in heard))
    during = [delay for one in heard for at, delay in one.commits if since <= at < until]
    return Figures(
        streams=found.plan.streams,
        processes=found.processes,
        steady_s=max(0.0, until - since),
        audio_s=audio_s,
        words=sum(len(one.commits) for one in heard),
        commit=summarize(during),
        commit_all=summarize([delay for one in heard for _, delay in one.commits]),
        first_text=summarize([delay for one in heard for delay in one.first_text]),
        final=summarize([delay for one in heard for delay in one.final]),
        errors=sum((one.errors for one in heard), Errors()),
        revised=sum(one.revised for one in heard),
        coverage=1 - sum(one.gap for one in heard) / samples,
        updates_per_s=sum(one.updates for one in heard) / max(audio_s, 1e-9),
        lag=summarize([one.lag_s for one in heard]),
        resumes=sum(one.resumes for one in heard),
        faults=sum(bool(one.faults) for one in heard) + found.plan.streams - len(heard),
        cpu_s_per_audio_s=meter.cpu_s / audio_s if meter and audio_s else None,
        bench_cpu_s_per_audio_s=found.cpu_s / max(audio_s, 1e-9),
        rss_max_mib=meter.max_rss_mib if meter else None,
    )


def steady(heard: Sequence[Heard]) -> tuple[float, float]:
    """From when on and until when all streams were live, on their clock."""
    if not heard:
        return 0.0, 0.0
    return max(one.live for one in heard), min(one.over for one in heard)


def targets(found: Figures, commit_s: float = COMMIT_S) -> list[Target]:
    """What holds where so many streams are served."""
    return [
        Target("word committed p95, s", found.commit.p95, commit_s),
        Target("committed words revised", float(found.revised), 0.0),
        Target("share of samples not covered", 1 - found.coverage, 0.0),
        Target("streams with a fault", float(found.faults), 0.0),
    ]


def show(found: Figures, goals: Sequence[Target], faults: Sequence[str]) -> None:
    """Print the page."""
    console = Console(highlight=False)
    rows = (
        (f"committed, {found.steady_s:.0f} s with all", found.commit),
        ("committed, whole run", found.commit_all),
        ("first text", found.first_text),
        ("final after a pause", found.final),
        ("sent late, at worst", found.lag),
    )
    console.print(delays_table(f"{found.streams} live streams", "seconds", rows))
    cpu = number(found.cpu_s_per_audio_s, 4)
    console.print(
        f"{found.audio_s:.0f} s of audio, {found.words} words, WER {100 * found.errors.rate:.2f} % of"
        f" {found.errors.length}, {found.updates_per_s:.2f} states a stream and second, coverage"
        f" {100 * found.coverage:.3f} %, {found.resumes} resumes; CPU per audio second: server {cpu} s,"
        f" speakers {found.bench_cpu_s_per_audio_s:.4f} s; RSS max {number(found.rss_max_mib, 0)} MiB"
    )
    for goal in goals:
        console.print(goal.line)
    show_faults(console, faults, SHOWN_FAULTS)


def document(
    found: Figures, goals: Sequence[Target], faults: Sequence[str], settings: dict[str, Any]
) -> dict[str, Any]:
    """Everything as plain values."""
    return {
        "bench": "load",
        "environment": environment(),
        "settings": settings,
        "total": {**asdict(found), "wer": found.errors.rate if found.errors.length else None},
        "targets": [{**asdict(goal), "met": goal.met} for goal in goals],
        "faults": list(faults),
    }
