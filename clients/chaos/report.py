"""What a run found, as a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clients.grid import grid

from .run import CONTROL, KINDS, Leak, Result
from .talk import Trial

_HEAD = ("fault", "scenarios", "failed", "struck", "resumes", "sessions", "receipts", "words", "longest")


def table(results: Sequence[Result], leaks: Sequence[Leak], took_s: float) -> str:
    """Markdown: one row a kind, the sum, then what each server held before and after."""
    rows = [_row(kind, [r for r in results if r.scenario.kind == kind]) for kind in (*KINDS, CONTROL)]
    lines = [grid(_HEAD, [*filter(None, rows), _row("all", results)]).rstrip()]
    struck = _apart(r.trial for r in results if r.scenario.kind != CONTROL)
    calm = _apart(r.trial for r in results if r.scenario.kind == CONTROL)
    if struck or calm:
        lines.append(f"\nWords that differ from a first run without faults: {struck or 'not known'};")
        lines.append(f"where there was no fault again: {calm or 'not known'}.")
    lines.append(f"\n{took_s:.0f} s.")
    for leak in leaks:
        old, new = leak.before, leak.after
        text = "; ".join(leak.problems) or "nothing held"
        if old.rss is not None and new.rss is not None:
            text += (
                f" (open files {old.files} -> {new.files}, threads {old.threads} -> {new.threads},"
                f" RSS {old.rss >> 20} -> {new.rss >> 20} MiB)"
            )
        counts = ", ".join(f"{name} {old.counts.get(name, 0):g} -> {n:g}" for name, n in new.counts.items())
        lines.append(f"{leak.name}: {text}{f' ({counts})' if counts else ''}")
    return "\n".join(lines) + "\n"


def _apart(trials: Iterable[Trial]) -> str:
    known = [t for t in trials if t.expected]
    apart, expected = sum(t.apart for t in known), sum(t.expected for t in known)
    return f"{apart} of {expected} ({apart / expected:.1%})" if expected else ""


def _row(name: str, results: Sequence[Result]) -> tuple[object, ...]:
    """Empty where there are none."""
    if not results:
        return ()
    trials = [r.trial for r in results]
    return (
        name,
        len(results),
        sum(bool(t.faults) for t in trials),
        sum(t.struck for t in trials),
        sum(t.resumes for t in trials),
        sum(t.sessions for t in trials),
        sum(t.receipts for t in trials),
        sum(t.words for t in trials),
        f"{max(r.took_s for r in results):.0f} s",
    )
