"""`bench capacity`: how many live streams a machine holds. Several numbers of streams, one after the other,
each on a server of its own whose door is open, until the delays are too long.

Accuracy stands beside it: the same utterances read offline by the same weights, as often as they were spoken.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from clients.launch import serving
from engine.weights import find_weights

from . import load_report, report
from .corpus import Clip, build
from .load import Plan, load, script
from .meter import metering
from .offline import Offline
from .report import number
from .scoring import Errors, score

HOLDS_S = 4.0
"""95 of 100 words are committed within this: then a stream is held."""

WORSE = 0.005
"""Word errors above those of the same weights offline that are no loss."""

OPEN_DOOR = "[admission]\non = false\n[limits]\nmax_sessions = {sessions}\n"
"""How many fit is to be found out, not what admission thinks."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Step:
    """What so many streams came to; `offline` is what the weights make of the same utterances unhurried."""

    figures: load_report.Figures
    offline: Errors | None
    faults: list[str]

    def holds(self, commit_s: float) -> bool:
        """Whether all of them were served, and in time."""
        found = self.figures
        late = found.commit.p95 is None or found.commit.p95 > commit_s
        return not (late or self.faults or found.revised or found.coverage < 1)

    @property
    def worse(self) -> float | None:
        """Word errors above offline, as a share of the words."""
        return None if self.offline is None else self.figures.errors.rate - self.offline.rate


def arguments(kinds: Any, kind: Callable[..., argparse.ArgumentParser], run: Any) -> None:
    made = kind(kinds, "capacity", "how many live streams this machine holds", run)
    made.add_argument("--streams", default="1,10,20,30", help="numbers to try (default %(default)s)")
    made.add_argument("--seconds", type=float, default=60.0, help="of each stream (default %(default)s)")
    made.add_argument("--ramp", type=float, default=10.0, metavar="S", help="from the first to the last")
    made.add_argument("--select", default="utterances_en/librispeech", help="as for load")
    made.add_argument("--seed", type=int, default=1, help="of order and gaps")
    made.add_argument(
        "--commit", type=float, default=HOLDS_S, help="p95 that is held, s (default %(default)s)"
    )
    made.add_argument("--all", action="store_true", help="go on after the first number that is not held")


def numbers(text: str, option: str = "--streams") -> list[int]:
    """What `option` lists, ascending; raises ValueError."""
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise ValueError(f"{option} {text}: whole numbers, separated by commas") from None
    if not found or found[0] < 1:
        raise ValueError(f"{option} {text}: at least one")
    return found


def unhurried(plan: Plan, clips: Sequence[Clip], read: dict[str, Errors]) -> Errors:
    """Errors of all that the plan's streams say, by those of each clip."""
    spoken = (clip for index in range(plan.streams) for _, clip in script(clips, index, plan).turns)
    return reduce(lambda a, b: a + b, (read[clip.name] for clip in spoken), Errors())


def reading(options: argparse.Namespace, clips: Sequence[Clip], tell: Tell) -> dict[str, Errors] | None:
    """Errors of each clip offline, by its name; None where they are left out."""
    if options.no_offline:
        return None
    tell(f"offline: {len(clips)} recordings")
    reader = Offline(find_weights(options.model))
    return {
        clip.name: score(clip.reference, reader.read(clip, language=clip.language).text, clip.language)
        for clip in clips
    }


@contextmanager
def open_door(given: Sequence[str], streams: int) -> Iterator[list[str]]:
    """Arguments of a server that lets everybody in, and none too many."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "capacity.toml")
        place.write_text(OPEN_DOOR.format(sessions=streams + 1), "utf-8")
        yield [*given, "--config", str(place)]


async def hold(
    options: argparse.Namespace, plan: Plan, clips: Sequence[Clip], read: dict[str, Errors] | None
) -> Step:
    """One number of streams on a fresh server."""
    given = options.serve or ["--engine", "local", "--model", options.model]
    with open_door(given, plan.streams) as served:
        async with serving(served) as child, metering(child.pid) as meter:
            found = await load(plan.to(child.url), clips, 1)
    faults = [*found.lost, *(fault for one in found.heard for fault in one.faults)]
    offline = None if read is None else unhurried(plan, clips, read)
    return Step(load_report.figures(found, meter), offline, faults)


async def run(options: argparse.Namespace, tell: Tell) -> bool:
    """Whether the first number, at least, is held."""
    if options.url:
        raise ValueError("--url: capacity starts its own servers, one for each number of streams")
    clips = build(options.audio, options.select, options.seed, tell)
    plan = Plan("", 1, options.seconds, options.ramp, options.seed, language=clips[0].language)
    read = await asyncio.to_thread(reading, options, clips, tell)
    steps: list[Step] = []
    for streams in numbers(options.streams):
        tell(f"{streams} streams of {options.seconds:g} s")
        steps.append(await hold(options, replace(plan, streams=streams), clips, read))
        tell(line(steps[-1]))
        if not (steps[-1].holds(options.commit) or options.all):
            break
    show(steps, options.commit)
    if options.json:
        report.write_json(options.json, document(steps, options))
    return steps[0].holds(options.commit)


def line(step: Step) -> str:
    """One step in a few words."""
    found = step.figures
    return (
        f"{found.streams}: committed p50 {number(found.commit.p50)} p95 {number(found.commit.p95)} s,"
        f" WER {100 * found.errors.rate:.2f} %, CPU {number(found.cpu_s_per_audio_s, 3)} s an audio second,"
        f" {len(step.faults)} faults"
    )


def row(step: Step, commit_s: float) -> list[str]:
    """The cells of a step, under `HEAD`."""
    found = step.figures
    offline = "-" if step.offline is None else f"{100 * step.offline.rate:.2f}"
    return [
        str(found.streams),
        *(number(value) for value in (found.commit.p50, found.commit.p95, found.commit.p99)),
        number(found.first_text.p50),
        f"{100 * found.errors.rate:.2f} / {offline}",
        f"{found.updates_per_s:.2f}",
        number(found.cpu_s_per_audio_s, 4),
        number(found.rss_max_mib, 0),
        str(len(step.faults)),
        "yes" if step.holds(commit_s) else "no",
    ]


HEAD = (
    "streams",
    "committed p50, s",
    "p95",
    "p99",
    "first text p50",
    "WER / offline, %",
    "states a s",
    "CPU s / audio s",
    "RSS MiB",
    "faults",
    "held",
)


def show(steps: Sequence[Step], commit_s: float) -> None:
    """Print the table, and why what is not held is not."""
    console = Console(highlight=False)
    table = Table(*HEAD, title=f"Live streams, p95 at most {commit_s:g} s", title_justify="left")
    for step in steps:
        table.add_row(*row(step, commit_s))
    console.print(table)
    for step in steps:
        if step.worse is not None and step.worse > WORSE:
            console.print(
                f"{step.figures.streams} streams: {100 * step.worse:.2f} points of WER above offline"
            )
        for fault in step.faults[: load_report.SHOWN_FAULTS]:
            console.print(f"{step.figures.streams} streams: {fault}", style="red", markup=False)


def document(steps: Sequence[Step], options: argparse.Namespace) -> dict[str, Any]:
    """Everything as plain values."""
    settings = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(options).items()
        if name not in {"run", "json", "audio"} and value not in (None, [])
    }
    held = [step.figures.streams for step in steps if step.holds(options.commit)]
    return {
        "bench": "capacity",
        "environment": report.environment(),
        "settings": settings,
        "held": max(held, default=0),
        "steps": [
            {
                **asdict(step.figures),
                "wer": step.figures.errors.rate,
                "wer_offline": None if step.offline is None else step.offline.rate,
                "faults": step.faults,
                "held": step.holds(options.commit),
            }
            for step in steps
        ],
    }
