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
from engine.sglang.folders import serving_folder
from engine.weights import find_weights

from .judge import Judged, judge
from .servers import OURS, Ours, Peer
from .sglang import Sglang
from .whisperlive import WhisperLive
from .whisperlivekit import WhisperLiveKit

Tell = Callable[[str], None]


def arguments(kinds: Any, kind: Callable[..., argparse.ArgumentParser], run: Any) -> None:
    made = kind(kinds, "peers", "other servers of live captions beside this one", run)
    made.add_argument("--streams", default="1,10,20,30", help="of ours; '' for none (default %(default)s)")
    made.add_argument("--whisperlivekit", type=Path, metavar="PROGRAM", help="its whisperlivekit-server")
    made.add_argument(
        "--whisperlive", type=Path, metavar="PYTHON", help="of an environment that holds whisper-live"
    )
    made.add_argument("--sglang", type=Path, metavar="PYTHON", help="of an environment that holds SGLang")
    made.add_argument(
        "--windows",
        default="5",
        metavar="S,...",
        help="for SGLang: audio of one request (default %(default)s)",
    )
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
    folder, sizes = find_weights(options.model), windows(options.windows)
    peers: list[Peer] = []
    if _there(options.whisperlivekit, "--whisperlivekit"):
        peers.append(WhisperLiveKit(options.whisperlivekit, folder, language))
    if _there(options.whisperlive, "--whisperlive"):
        peers.append(WhisperLive(options.whisperlive, folder, language))
    if _there(options.sglang, "--sglang"):
        serving = serving_folder(options.model)
        peers += [Sglang(options.sglang, serving, language, window_s) for window_s in sizes]
    theirs = numbers(options.peer_streams)
    found = [(peer, theirs) for peer in peers]
    if options.streams:
        found.append((Ours(options.model, language), numbers(options.streams)))
    if not found:
        raise ValueError("--streams '': nobody is left to measure; name a peer, or streams of ours")
    return found


def _there(program: Path | None, option: str) -> bool:
    """Whether it was named; raises ValueError where it is no file."""
    if program is not None and not program.is_file():
        raise ValueError(f"{option} {program}: no such program")
    return program is not None


def windows(text: str) -> list[float]:
    """Seconds of each; raises ValueError."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--windows {text}: seconds, separated by commas") from None
    if not all(1 <= window_s <= 30 for window_s in found):
        raise ValueError(f"--windows {text}: use 1 to 30 seconds")
    return found


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
            if options.json:
                report.write_json(options.json, document(steps, options))
            if not steps[-1].holds(options.commit):
                break
    show(steps, options.commit)
    return all(held(steps, name, options.commit) for name in names(steps))


def document(steps: Sequence[Judged], options: argparse.Namespace) -> dict[str, Any]:
    """Everything so far as plain values."""
    return {
        "bench": "peers",
        "environment": report.environment(),
        "settings": report.told(options),
        "steps": [{**asdict(step), "wer": step.errors.rate} for step in steps],
        "held": {name: held(steps, name, options.commit) for name in names(steps)},
    }


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
    "WER / offline, %",
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
        f"{100 * step.errors.rate:.2f} / {100 * step.offline.rate:.2f}",
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
    for line in ratios(steps, commit_s):
        console.print(line)
    for step in steps:
        for fault in step.faults[:5]:
            console.print(f"{step.name}, {step.streams} streams: {fault}", style="red", markup=False)


def ratios(steps: Sequence[Judged], commit_s: float) -> list[str]:
    """Ours beside each of the others: streams held; delay and cost at the first number of each."""
    first = {step.name: step for step in reversed(steps)}
    ours = first.pop(OURS, None)
    if ours is None:
        return []
    most, found = held(steps, OURS, commit_s), []
    for name in filter(first.__contains__, names(steps)):
        theirs, base = held(steps, name, commit_s), first[name]
        many = f"{most / theirs:.1f} times as many" if theirs else "it holds none"
        found.append(f"{OURS} holds {most} streams, {name} {theirs}: {many}")
        pairs = (
            ("committed p50", ours.commit.p50, base.commit.p50),
            ("p95", ours.commit.p95, base.commit.p95),
            ("CPU", ours.cpu_s_per_audio_s, base.cpu_s_per_audio_s),
            ("RSS", ours.rss_max_mib, base.rss_max_mib),
        )
        shares = [f"{what} {mine / other:.2f}" for what, mine, other in pairs if mine is not None and other]
        found.append(f"  {ours.streams} of ours / {base.streams} of its: {', '.join(shares)}")
    return found
