"""`bench overload`: three times as many clients as fit. Do those who are let in notice, are the others told?

One stream at first, alone: that is what delays are without load. Then one client a second for as long as
some are let in: so many fit. Then three times as many come at once, and who is refused comes again, so that
no place stays free.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

from rich.console import Console
from rich.table import Table

from clients.aio import ClientError
from clients.delays import measure, own_times
from clients.dialing import Refused
from clients.play import Arrival, Listener, Pace, Playback, play
from clients.stats import summarize
from streaming.wire.messages import Start

from .corpus import Clip
from .report import Target, number, show_faults
from .scoring import Errors, score

BLOCK = 32_000
"""Bytes: a second."""

STEP_S = 1.0
"""From one client to the next while it is found out how many fit."""

FULL_S = 15.0
"""So long nobody more is let in once all are in who fit: the server lets in few at a time and looks."""

LONGEST_S = 300.0
"""Filling ends then at the latest."""

REST_S = 15.0
"""Between two phases: what the server measured of the one is to be past."""

SPREAD_S = 2.0
"""Time in which the crowd arrives."""

AGAIN_S = 5.0
"""When who was refused comes again."""

TRIES = 24
"""How often one client alone asks for each clip."""

RATIO = 1.5
REFUSED_S = 1.0

Tell = Callable[[str], None]
Enter = Callable[[Playback, Iterable[bytes], Listener], Awaitable[None]]
"""Plays one stream to its end, as `clients.play.play` does, with its errors."""


def entrance(url: str) -> Enter:
    """The streams of one server."""

    async def enter(playback: Playback, pieces: Iterable[bytes], listen: Listener) -> None:
        await play(playback, url, Start(), pieces, Pace(), listen)

    return enter


@dataclass(slots=True)
class Crowd:
    """What became of all clients of one phase."""

    name: str
    clients: int = 0
    live: int = 0
    most: int = 0
    """Streams that were live at once."""
    grew: float = 0.0
    """When `most` did, on the loop's clock."""
    served: list[Playback] = field(default_factory=list)
    errors: Errors = field(default_factory=Errors)
    """Of the clips that were played whole."""
    refused_s: list[float] = field(default_factory=list)
    """How long each refusal took to come."""
    unclear: list[str] = field(default_factory=list)
    """What went wrong and is no refusal."""
    rss_mib: float | None = None
    """The server's memory at its most, until the end of this phase."""
    load: float = 0.0
    """The machine's load average at its end: others may use it too."""

    @property
    def delays(self) -> list[float]:
        """Of every committed word, seconds from its end, by the service's own times."""
        return [d for playback in self.served for d in measure(playback, own_times(playback)).commit]


async def visit(crowd: Crowd, enter: Enter, name: str, pieces: Iterable[bytes]) -> Playback | None:
    """Ask once, and play all of it where let in; else None."""
    loop = asyncio.get_running_loop()
    playback, asked, within = Playback(name), loop.time(), False

    def listen(_: Playback, arrival: Arrival) -> None:
        nonlocal within
        if not within:
            within = True
            crowd.live += 1
            if crowd.live > crowd.most:
                crowd.most, crowd.grew = crowd.live, loop.time()

    try:
        await enter(playback, pieces, listen)
    except ClientError as error:
        if isinstance(error, Refused) and error.retryable:
            crowd.refused_s.append(loop.time() - asked)
        else:
            crowd.unclear.append(f"{name}: {error}")
        return None
    finally:
        crowd.live -= within
    crowd.served.append(playback)
    crowd.unclear += [f"{name}: {fault}" for fault in playback.faults()]
    return playback


async def perform(crowd: Crowd, enter: Enter, clip: Clip) -> bool:
    """One clip from its beginning to its end; whether it was let in."""
    playback = await visit(crowd, enter, clip.name, _blocks(clip))
    if playback is not None:
        crowd.errors += score(clip.reference, playback.captions.committed, clip.language)
    return playback is not None


async def alone(enter: Enter, clips: Sequence[Clip]) -> Crowd:
    """One after the other. On a machine that others use as well even one may have to come again."""
    crowd = Crowd("alone", clients=1)
    for clip in clips:
        for _ in range(TRIES):
            if await perform(crowd, enter, clip):
                break
            await asyncio.sleep(AGAIN_S)
    return crowd


async def fill(enter: Enter, clips: Sequence[Clip], tell: Tell) -> Crowd:
    """One more every `STEP_S` until nobody has been let in for `FULL_S`; they speak on until then."""
    loop, full = asyncio.get_running_loop(), asyncio.Event()
    began = loop.time()
    crowd = Crowd("filling", grew=began)

    def speak(first: int) -> Iterator[bytes]:
        for clip in islice(cycle(clips), first, None):
            for block in _blocks(clip):
                if full.is_set():
                    return
                yield block

    async with asyncio.TaskGroup() as group:
        while loop.time() - crowd.grew < FULL_S and loop.time() - began < LONGEST_S:
            first = crowd.clients % len(clips)
            group.create_task(visit(crowd, enter, f"client {crowd.clients + 1}", speak(first)))
            crowd.clients += 1
            await asyncio.sleep(STEP_S)
        full.set()
    tell(f"{crowd.most} fit, the last of them after {crowd.grew - began:.0f} s")
    return crowd


async def press(enter: Enter, clips: Sequence[Clip], clients: int, seconds: float) -> Crowd:
    """`clients` at once; who is refused comes again until `seconds` have passed."""
    crowd, loop = Crowd("pressed", clients=clients), asyncio.get_running_loop()
    until = loop.time() + seconds

    async def come(index: int) -> None:
        await asyncio.sleep(SPREAD_S * index / clients)
        while not await perform(crowd, enter, clips[index % len(clips)]):
            if loop.time() + AGAIN_S >= until:
                return
            await asyncio.sleep(AGAIN_S)

    async with asyncio.TaskGroup() as group:
        for index in range(clients):
            group.create_task(come(index))
    return crowd


async def overload(
    enter: Enter,
    clips: Sequence[Clip],
    times: float,
    seconds: float,
    memory: Callable[[], float | None],
    tell: Tell,
) -> list[Crowd]:
    """All three phases; `memory` is the server's at its most until now, MiB."""

    def done(crowd: Crowd) -> Crowd:
        crowd.rss_mib, crowd.load = memory(), os.getloadavg()[0]
        return crowd

    tell("one stream alone")
    unloaded = done(await alone(enter, clips))
    await asyncio.sleep(REST_S)
    tell("one client more a second, until no more are let in")
    full = done(await fill(enter, clips, tell))
    await asyncio.sleep(REST_S)
    clients = round(times * full.most)
    tell(f"{clients} clients at once")
    return [unloaded, full, done(await press(enter, clips, clients, seconds))]


def _blocks(clip: Clip) -> Iterator[bytes]:
    data = clip.pcm.tobytes()
    return (data[at : at + BLOCK] for at in range(0, len(data), BLOCK))


def goals(crowds: Sequence[Crowd]) -> list[Target]:
    """What admission promises."""
    known, loaded = (summarize(crowd.delays).p95 for crowd in (crowds[0], crowds[-1]))
    refusals = [s for crowd in crowds for s in crowd.refused_s]
    return [
        Target("word committed p95, of its value alone", loaded / known if known and loaded else None, RATIO),
        Target("slowest refusal, s", max(refusals, default=None), REFUSED_S),
        Target("ends that are no clear refusal", float(sum(len(c.unclear) for c in crowds)), 0.0),
    ]


def figures(crowd: Crowd) -> dict[str, Any]:
    """One phase as plain values; seconds."""
    commit = summarize(crowd.delays)
    return {
        "phase": crowd.name,
        "clients": crowd.clients,
        "live_at_once": crowd.most,
        "served": len(crowd.served),
        "words": commit.count,
        "commit_p50": commit.p50,
        "commit_p95": commit.p95,
        "commit_p99": commit.p99,
        "wer": crowd.errors.rate if crowd.errors.length else None,
        "refusals": len(crowd.refused_s),
        "refused_max": max(crowd.refused_s, default=None),
        "rss_mib": crowd.rss_mib,
        "load": crowd.load,
        "unclear": crowd.unclear,
    }


ROWS = (
    ("clients", "clients", 0),
    ("live at once", "live_at_once", 0),
    ("words", "words", 0),
    ("committed after p50, s", "commit_p50", 2),
    ("p95", "commit_p95", 2),
    ("p99", "commit_p99", 2),
    ("WER", "wer", 4),
    ("refusals", "refusals", 0),
    ("slowest, s", "refused_max", 3),
    ("server RSS at most until then, MiB", "rss_mib", 0),
    ("load average of the machine", "load", 1),
)


def show(phases: Sequence[dict[str, Any]], targets: Sequence[Target]) -> None:
    """Print the tables."""
    console = Console(highlight=False)
    table = Table("", *(phase["phase"] for phase in phases))
    for name, key, digits in ROWS:
        table.add_row(name, *(number(phase[key], digits) for phase in phases))
    console.print(table)
    for goal in targets:
        console.print(goal.line)
    show_faults(console, [f"{phase['phase']}: {line}" for phase in phases for line in phase["unclear"]])


def arguments(kinds: Any, kind: Callable[..., Any], run: Any) -> None:
    over = kind(kinds, "overload", "three times as many clients as fit", run)
    over.add_argument("--select", default="librispeech", help="as for live; the shortest clips are taken")
    over.add_argument("--clips", type=int, default=4, help="how many (default %(default)s)")
    over.add_argument("--times", type=float, default=3.0, help="of those that fit (default %(default)s)")
    over.add_argument("--seconds", type=float, default=90.0, help="of the crowd (default %(default)s)")
    over.add_argument("--seed", type=int, default=1, help="of the gaps between utterances")
    over.add_argument("--gate", action="store_true", help="exit with 1 when a target is missed")
