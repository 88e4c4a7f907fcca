"""The command `bench peers`."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from clients.bench import report
from clients.bench.capacity import HOLDS_S, numbers
from clients.bench.corpus import Clip, build
from clients.bench.load import Plan, script
from clients.bench.meter import metering
from clients.bench.offline import Offline, Reading
from clients.bench.report import number
from engine.weights import find_weights

from .judge import Judged, judge
from .servers import Ours, Peer, WhisperLiveKit

Tell = Callable[[str], None]


def arguments(kinds: Any, kind: Callable[..., argparse.ArgumentParser], run: Any) -> None:
    made = kind(kinds, "peers", "other servers of live captions beside this one", run)
    made.add_argument("--streams", default="1,10,20,30", help="of ours (default %(default)s)")
    made.add_argument("--whisperlivekit", type=Path, metavar="PROGRAM", help="its whisperlivekit-server")
    made.add_argument(
        "--peer-streams", default="1,2,3", help="of the others, until one is late (default %(default)s)"
    )
    made.add_argument("--seconds", type=float, default=60.0, help="of each stream (default %(default)s)")
    made.add_argument("--select", default="utterances_en/librispeech", help="as for load")
    made.add_argument("--seed", type=int, default=1, help="of order and gaps")
    made.add_argument(
        "--commit", type=float, default=HOLDS_S, help="p95 that is held, s (default %(default)s)"
    )


async def perform(peer: Peer, plan: Plan, clips: Sequence[Clip], read: Callable[[Clip], Reading]) -> Judged:
    """All streams of the plan on a fresh server."""
    said = [script(clips, index, plan) for index in range(plan.streams)]

    async def one(index: int, url: str) -> Any:
        await asyncio.sleep(plan.begins(index))
        return await peer.speak(url, said[index])

    async with peer.running(plan.streams) as (url, pid), metering(pid) as meter:
        heard = await asyncio.gather(*(one(index, url) for index in range(plan.streams)))
    return judge(peer.name, list(zip(said, heard, strict=True)), read, meter.cpu_s, meter.max_rss_mib)


def lineup(options: argparse.Namespace, language: str) -> list[tuple[Peer, list[int]]]:
    """Who is measured, each with its numbers of streams: the others first. Raises ValueError."""
    folder = find_weights(options.model)
    theirs = numbers(options.peer_streams)
    found: list[tuple[Peer, list[int]]] = []
    if options.whisperlivekit is not None:
        if not options.whisperlivekit.is_file():
            raise ValueError(f"--whisperlivekit {options.whisperlivekit}: no such program")
        found.append((WhisperLiveKit(options.whisperlivekit, folder, language), theirs))
    return [*found, (Ours(options.model, language), numbers(options.streams))]


async def run(options: argparse.Namespace, tell: Tell) -> bool:
    """Whether every server held its first number of streams without a fault."""
    if options.url:
        raise ValueError("--url: peers starts its own servers, one for each number of streams")
    clips = build(options.audio, options.select, options.seed, tell)
    language = clips[0].language
    reader = Offline(find_weights(options.model))

    def read(clip: Clip) -> Reading:
        return reader.read(clip, language=language)

    tell(f"offline: {len(clips)} recordings")
    for clip in clips:
        await asyncio.to_thread(read, clip)
    plan = Plan("", 1, options.seconds, min(10.0, options.seconds / 4), options.seed, language)
    steps: list[Judged] = []
    for peer, counts in lineup(options, language):
        for streams in counts:
            steps.append(await perform(peer, replace(plan, streams=streams), clips, read))
            tell(" ".join(row(steps[-1], options.commit)))
            if not steps[-1].holds(options.commit):
                break
    show(steps, options.commit)
    if options.json:
        body = {
            "bench": "peers",
            "environment": report.environment(),
            "steps": [{**asdict(step), "wer": step.errors.rate} for step in steps],
            "held": {name: held(steps, name, options.commit) for name in names(steps)},
        }
        report.write_json(options.json, body)
    return all(held(steps, name, options.commit) for name in names(steps))


def names(steps: Sequence[Judged]) -> list[str]:
    """Of the servers, in their order."""
    return list(dict.fromkeys(step.name for step in steps))


def held(steps: Sequence[Judged], name: str, commit_s: float) -> int:
    """Most streams that a server holds; 0 where it holds none that was tried."""
    return max((step.streams for step in steps if step.name == name and step.holds(commit_s)), default=0)


HEAD = (
    "server",
    "streams",
    "committed p50, s",
    "p95",
    "first text p50",
    "WER, %",
    "revised, %",
    "CPU s / audio s",
    "RSS MiB",
    "faults",
    "held",
)


def row(step: Judged, commit_s: float) -> list[str]:
    return [
        step.name,
        str(step.streams),
        number(step.commit.p50),
        number(step.commit.p95),
        number(step.first.p50),
        f"{100 * step.errors.rate:.2f}",
        f"{100 * step.revised / max(step.words, 1):.2f}",
        number(step.cpu_s_per_audio_s, 3),
        number(step.rss_max_mib, 0),
        str(len(step.faults)),
        "yes" if step.holds(commit_s) else "no",
    ]


def show(steps: Sequence[Judged], commit_s: float) -> None:
    """Print the table and the ratios."""
    console = Console(highlight=False)
    table = Table(*HEAD, title=f"Streams with p95 at most {commit_s:g} s", title_justify="left")
    for step in steps:
        table.add_row(*row(step, commit_s))
    console.print(table)
    ours = held(steps, names(steps)[-1], commit_s)
    for name in names(steps)[:-1]:
        theirs = held(steps, name, commit_s)
        ratio = f"{ours / theirs:.1f} times as many" if theirs else "it holds none"
        console.print(f"{names(steps)[-1]} holds {ours} streams, {name} {theirs}: {ratio}")
    for step in steps:
        for fault in step.faults[:5]:
            console.print(f"{step.name}, {step.streams} streams: {fault}", style="red", markup=False)
