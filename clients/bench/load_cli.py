"""The command `bench load`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from clients.launch import Server
from clients.play import Pace

from . import load_report, report
from .corpus import build
from .load import Plan, load
from .meter import Meter, metering


def arguments(kinds: Any, kind: Callable[..., argparse.ArgumentParser], run: Any) -> None:
    made = kind(kinds, "load", "many live streams at once, from several processes", run)
    made.add_argument("--streams", type=int, default=100, help="how many at once (default %(default)s)")
    made.add_argument("--seconds", type=float, default=60.0, help="of each stream (default %(default)s)")
    made.add_argument(
        "--ramp",
        type=float,
        default=10.0,
        metavar="S",
        help="from the first to the last (default %(default)s)",
    )
    made.add_argument("--processes", type=int, default=0, help="that speak; default half of the cores")
    made.add_argument(
        "--select", default="utterances_en/librispeech", help="parts of paths; whole utterances are spoken"
    )
    made.add_argument("--packet-ms", type=int, default=100, help="audio of a message (default %(default)s)")
    made.add_argument("--language", help="told to the server; left out: it detects")
    made.add_argument("--seed", type=int, default=1, help="of order and gaps")
    made.add_argument("--commit", type=float, default=load_report.COMMIT_S, help="p95 that is wanted, s")
    made.add_argument("--meter", type=int, metavar="PID", help="the server's process, where --url names it")
    made.add_argument("--gate", action="store_true", help="exit with 1 when a target is missed")


async def run(
    options: argparse.Namespace,
    server: Callable[[argparse.Namespace], AbstractAsyncContextManager[Server]],
    tell: Callable[[str], None],
) -> bool:
    """Whether no stream failed, and with --gate every target is met."""
    clips = build(options.audio, options.select, options.seed, tell)
    processes = options.processes or max(1, min(options.streams, (os.cpu_count() or 2) // 2))
    pace = Pace(packet_s=options.packet_ms / 1000)
    asked = Plan("", options.streams, options.seconds, options.ramp, options.seed, options.language, pace)
    meter: Meter | None = None
    async with AsyncExitStack() as stack:
        target = await stack.enter_async_context(server(options))
        if pid := options.meter or target.pid:
            meter = await stack.enter_async_context(metering(pid))
        tell(f"{options.streams} streams of {options.seconds:g} s from {processes} processes")
        found = await load(asked.to(target.url), clips, processes)
    result = load_report.figures(found, meter)
    goals = load_report.targets(result, options.commit)
    faults = [*found.lost, *(fault for one in found.heard for fault in one.faults)]
    load_report.show(result, goals, faults)
    if options.json:
        document = load_report.document(result, goals, faults, report.told(options))
        report.write_json(options.json, document)
    return not result.faults and (not options.gate or all(goal.met for goal in goals))
