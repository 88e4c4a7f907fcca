"""The command `bench growth`: cost against the length of a meeting, against streams, against people."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, replace
from typing import Any

from clients.launch import Server, serving

from . import growth, growth_page, growth_people, report
from .capacity import HOLDS_S, Step, hold, numbers, open_door
from .corpus import Clip, build
from .growth_page import Curve, Plot
from .load import Plan
from .meter import metering
from .report import number

Open = Callable[[argparse.Namespace], AbstractAsyncContextManager[Server]]
Tell = Callable[[str], None]

SELECT = {
    "length": "en",
    "streams": "utterances_en/librispeech",
    "speakers": growth_people.SELECT,
}
SECONDS = {"streams": 30.0, "speakers": 300.0}


def arguments(kinds: Any, kind: Callable[..., argparse.ArgumentParser], run: Any) -> None:
    made = kind(kinds, "growth", "cost per audio second as one thing grows", run)
    made.add_argument("--against", choices=SELECT, default="length", help="what grows (default %(default)s)")
    made.add_argument("--select", help="as for live (length), load (streams); parts of paths (speakers)")
    made.add_argument("--minutes", type=float, default=60, help="length: of speech (default %(default)s)")
    made.add_argument("--silent-minutes", type=float, default=10, help="length (default %(default)s)")
    made.add_argument("--bucket-minutes", type=float, default=1, help="length (default %(default)s)")
    made.add_argument(
        "--streams", default="1,10,50,100,200,400,800", help="numbers at once (default %(default)s)"
    )
    made.add_argument("--ramp", type=float, default=10.0, metavar="S", help="streams: first to last")
    made.add_argument("--speakers", default="1,2,4,6,10,20", help="numbers of people (default %(default)s)")
    made.add_argument("--seconds", type=float, help="of each stream (default 30) or recording (300)")
    made.add_argument("--seed", type=int, default=1, help="of order and gaps")


async def run(options: argparse.Namespace, open_server: Open, tell: Tell) -> bool:
    """Whether every stream was whole, and silence silent. That a number of streams is too many for the
    machine is told, and no fault."""
    options.select = options.select or SELECT[options.against]
    options.seconds = options.seconds or SECONDS.get(options.against, 0.0)
    match options.against:
        case "streams":
            curve, raw, whole = await streams(options, tell)
        case "speakers":
            curve, raw, whole = await speakers(options, tell)
        case _:
            curve, raw, whole = await length(options, open_server, tell)
    body = {"bench": "growth", "environment": report.environment(), "settings": report.told(options)}
    body |= asdict(curve) | raw
    print(growth_page.markdown(body))
    if options.json:
        report.write_json(options.json, body)
    return whole


async def length(
    options: argparse.Namespace, open_server: Open, tell: Tell
) -> tuple[Curve, dict[str, Any], bool]:
    """One long meeting, then silence, on one server."""
    clips = build(options.audio, options.select, options.seed, tell)
    runs, bucket_s = [], 60 * options.bucket_minutes
    async with open_server(options) as target:
        for name, blocks in (
            (f"{options.minutes:g} minutes of speech", growth.speech(clips, 60 * options.minutes)),
            (f"{options.silent_minutes:g} minutes of silence", growth.silence(60 * options.silent_minutes)),
        ):
            tell(name)
            runs.append(await growth.grow(target.url, target.pid or None, name, blocks, bucket_s, tell))
    for playback, _ in runs:
        if receipt := playback.captions.receipt:
            tell(
                f"{playback.name}: receipt for {receipt.samples} of {playback.sent} samples, {receipt.words}"
                f" words, silence {receipt.silence_ms / 1000:.1f} s, gaps {receipt.gap_ms / 1000:.1f} s"
            )
        for fault in playback.faults():
            tell(fault)
    kept = [
        {
            "name": playback.name,
            "buckets": [asdict(bucket) for bucket in gauge.buckets],
            "faults": playback.faults(),
            "words": len(playback.captions.transcript),
        }
        for playback, gauge in runs
    ]
    (spoken, voiced), (silent, quiet) = runs
    ready = spoken.captions.ready
    curve = growth.curve(ready.model if ready else options.model, voiced.buckets, quiet.buckets)
    whole = not (silent.captions.transcript or spoken.faults() or silent.faults())
    return curve, {"runs": kept}, whole


async def streams(options: argparse.Namespace, tell: Tell) -> tuple[Curve, dict[str, Any], bool]:
    """Numbers of live streams, each on a server of its own, and one that nobody speaks to."""
    if options.url:
        raise ValueError("--url: growth against streams starts its own servers, one for each number")
    clips = build(options.audio, options.select, options.seed, tell)
    plan = Plan("", 1, options.seconds, options.ramp, options.seed, language=clips[0].language)
    counts, steps = numbers(options.streams), list[Step]()
    at_rest = await idle(options, tell)
    for count in counts:
        tell(f"{count} streams of {options.seconds:g} s")
        steps.append(await hold(options, replace(plan, streams=count), clips, None))
        for fault in steps[-1].faults[:3]:
            tell(fault)
    served = options.serve or ["--engine", "local", "--model", options.model]
    raw = {
        "idle_cpu_s_per_s": at_rest,
        "steps": [asdict(step.figures) | {"faults": step.faults} for step in steps],
    }
    tell(f"a server that nobody speaks to takes {1000 * at_rest:.2f} ms of CPU a second")
    curve = against_streams(" ".join(served), at_rest, options.ramp, steps)
    return curve, raw, bool(steps[0].holds(HOLDS_S))


async def idle(options: argparse.Namespace, tell: Tell) -> float:
    """CPU seconds a second of a server that nobody speaks to."""
    tell("a server that nobody speaks to")
    given = options.serve or ["--engine", "local", "--model", options.model]
    with open_door(given, 1) as served:
        async with serving(served) as child, metering(child.pid) as meter:
            await asyncio.sleep(options.seconds)
    return meter.cpu_s / float(options.seconds)


def against_streams(served: str, at_rest: float, ramp_s: float, steps: Sequence[Step]) -> Curve:
    """The cost of each step, and what of it is left without that of the server at rest for as long."""
    rows, costs, own, memory = [], list[float | None](), list[float | None](), list[float | None]()
    for step in steps:
        found = step.figures
        cost = None if found.cpu_s_per_audio_s is None else 1000 * found.cpu_s_per_audio_s
        took_s = found.audio_s / found.streams + ramp_s
        costs.append(cost)
        own.append(None if cost is None else cost - 1000 * at_rest * took_s / found.audio_s)
        memory.append(found.rss_max_mib)
        rows.append(
            (
                str(found.streams),
                number(cost),
                number(own[-1]),
                f"{found.updates_per_s:.2f}",
                number(found.rss_max_mib, 0),
                number(found.commit.p95),
                number(found.lag.p95),
                str(len(step.faults)),
                "yes" if step.holds(HOLDS_S) else "no",
            )
        )
    places = tuple(str(step.figures.streams) for step in steps)
    return Curve(
        "streams",
        f"Streams at once ({served})",
        (
            "streams",
            "CPU ms / audio s",
            "without the server at rest",
            "states a stream and s",
            "RSS max, MiB",
            "committed p95, s",
            "sent late p95, s",
            "faults",
            "held",
        ),
        tuple(rows),
        (
            Plot("CPU of the server", "streams at once", places, "CPU ms / audio s", tuple(costs)),
            Plot("Memory of the server", "streams at once", places, "RSS, MiB", tuple(memory)),
        ),
    )


async def speakers(options: argparse.Namespace, tell: Tell) -> tuple[Curve, dict[str, Any], bool]:
    """Recordings of one length by more and more people, without a server."""
    counts, costs = numbers(options.speakers, "--speakers"), []
    made: list[Clip] = [
        growth_people.gathering(options.audio, options.select, count, options.seconds, options.seed, tell)
        for count in counts
    ]
    for clip in made:
        tell(clip.name)
        costs.append(await growth_people.measure(clip))
    curve = growth_people.curve(counts, options.seconds, costs)
    return curve, {"costs": [asdict(one) for one in costs]}, True
