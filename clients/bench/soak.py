"""`bench soak`: is memory flat while sessions come and go? Speech at speed 1 in each of some seats, one
session after the other, each of its own length; some clients leave in the middle. The server writes
its journal.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from clients.aio import ClientError
from clients.launch import serving
from clients.play import Pace, Playback, play
from streaming.wire.messages import Start

from . import report
from .corpus import Clip, build
from .growth import speech
from .meter import sample

LOOK_S = 5.0
SETTLED = 1 / 3
"""Share of the run after which memory should be flat: sessions that have ended are kept for minutes by
design, and the engine reserves as it meets longer windows."""
LENGTH_S = (20.0, 240.0)
PAUSE_S = (0.0, 15.0)
REST_S = 65.0
"""Nobody speaks for so long before memory at rest is read: the server gives back what is free meanwhile."""
LEAVES = 0.2
"""Share of clients that leave in the middle."""


@dataclass(frozen=True, slots=True)
class Look:
    """Seconds since the first session, the server's memory, the sessions that speak."""

    at_s: float
    rss_mib: float
    sessions: int


@dataclass(slots=True)
class Soak:
    """What a run has seen."""

    idle_mib: float
    """Memory at rest before the first of the counted sessions; the engine has decoded before."""
    rest_mib: float = 0.0
    """And after the last."""
    looks: list[Look] = field(default_factory=list)
    ended: int = 0
    left: int = 0
    refused: int = 0
    """By a server that works at its limit."""
    audio_s: float = 0.0
    faults: list[str] = field(default_factory=list)
    speaking: int = 0

    @property
    def settled(self) -> list[Look]:
        """The looks from which the slope is taken."""
        return [look for look in self.looks if look.at_s >= SETTLED * self.looks[-1].at_s]


def session_mib(looks: Sequence[Look], idle_mib: float) -> float:
    """Memory above idle for each of the sessions at once, at the highest: what those that have ended still
    hold, the journal and the engine's reserves included."""
    most = max(look.sessions for look in looks)
    return (max(look.rss_mib for look in looks) - idle_mib) / max(most, 1)


def slope(looks: Sequence[Look]) -> float:
    """MiB an hour: the line of least squares; 0 for fewer than two moments."""
    at = np.array([look.at_s for look in looks]) / 3600
    if len(at) < 2 or np.ptp(at) == 0:
        return 0.0
    rss = np.array([look.rss_mib for look in looks])
    return float(np.polyfit(at - at.mean(), rss, 1)[0])


async def soak(url: str, pid: int, clips: Sequence[Clip], seats: int, seconds: float, seed: int) -> Soak:
    """Speak for so long; one session is spoken before, so that the engine has what it needs."""
    await _speak(url, clips, 20.0, None, Soak(0.0))
    found = Soak(await _at_rest(pid))
    begin = monotonic()

    async def watch() -> None:
        while True:
            found.looks.append(Look(monotonic() - begin, rss(pid), found.speaking))
            await asyncio.sleep(LOOK_S)

    watching = asyncio.create_task(watch())
    rng = random.Random(seed)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(seats):
            tasks.create_task(_seat(url, clips, begin + seconds, random.Random(rng.random()), found))
    watching.cancel()
    found.rest_mib = await _at_rest(pid)
    return found


async def _at_rest(pid: int) -> float:
    await asyncio.sleep(REST_S)
    return rss(pid)


def rss(pid: int) -> float:
    """MiB of the server; raises OSError where it is gone."""
    if (seen := sample(pid)) is None:
        raise OSError("the server is gone")
    return seen.rss_mib


async def _seat(url: str, clips: Sequence[Clip], until: float, rng: random.Random, found: Soak) -> None:
    while (left := until - monotonic()) > LENGTH_S[0]:
        await asyncio.sleep(rng.uniform(*PAUSE_S))
        length = min(rng.uniform(*LENGTH_S), left)
        leave = rng.uniform(1, length) if rng.random() < LEAVES else None
        await _speak(url, rng.sample(list(clips), len(clips)), length, leave, found)


async def _speak(url: str, clips: Sequence[Clip], seconds: float, leave: float | None, found: Soak) -> None:
    """One session; its client leaves after `leave` seconds if that is given."""
    playback = Playback(f"session {found.ended + found.left + found.speaking + 1}")
    found.speaking += 1
    try:
        async with asyncio.timeout(leave):
            await play(playback, url, Start(), speech(clips, seconds), Pace(), lambda *_: None)
    except TimeoutError:
        found.left += 1
    except ClientError as error:
        if error.retryable and playback.captions.ready is None:
            found.refused += 1
        else:
            found.faults.append(f"{playback.name}: {error}")
    else:
        found.ended += 1
        found.faults += [f"{playback.name}: {fault}" for fault in playback.faults()]
    found.audio_s += playback.sent_s
    found.speaking -= 1


def show(found: Soak) -> None:
    """Print some moments, and what they come to."""
    table = Table("minute", "sessions", "RSS MiB")
    for look in islice(found.looks, 0, None, max(1, len(found.looks) // 15)):
        table.add_row(f"{look.at_s / 60:.0f}", str(look.sessions), f"{look.rss_mib:.1f}")
    console = Console(highlight=False)
    console.print(table)
    above = session_mib(found.looks, found.idle_mib)
    console.print(
        f"{found.ended} sessions ended, {found.left} clients left, {found.refused} were refused,"
        f" {found.audio_s / 60:.1f} minutes of audio; RSS {slope(found.settled):+.1f} MiB/h after the first"
        f" third, at the highest {above:.1f} MiB a session above rest, the engine's working memory included;"
        f" at rest {found.idle_mib:.1f} MiB before, {found.rest_mib:.1f} MiB after"
    )
    report.show_faults(console, found.faults)


def arguments(kinds: Any, kind: Callable[..., Any], run: Any) -> None:
    made = kind(kinds, "soak", "memory while sessions come and go", run)
    made.add_argument("--select", default="en")
    made.add_argument("--minutes", type=float, default=30)
    made.add_argument("--streams", type=int, default=4, help="sessions at once (default %(default)s)")
    made.add_argument("--seed", type=int, default=1)


async def run(options: Any, tell: Callable[[str], None]) -> bool:
    """The command; whether nothing was wrong with any session."""
    if options.url:
        raise ValueError("--url: soak starts its own server, whose memory it reads")
    clips = build(options.audio, options.select, options.seed, tell)
    with tempfile.TemporaryDirectory(prefix="seamscribe-soak-") as folder:
        config = Path(folder) / "soak.toml"
        config.write_text(f'[journal]\npath = "{folder}/journal"\n')
        chosen = options.serve or ["--engine", "local", "--model", options.model]
        async with serving(["--config", str(config), *chosen], journal=True) as server:
            found = await soak(
                server.url, server.pid, clips, options.streams, 60 * options.minutes, options.seed
            )
    show(found)
    if options.json:
        body = {"bench": "soak", "environment": report.environment(), "soak": asdict(found)}
        report.write_json(options.json, body | {"slope_mib_per_h": slope(found.settled)})
    return not found.faults
