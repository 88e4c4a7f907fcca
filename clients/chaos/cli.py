"""`seamscribe chaos`: break lines, clients and servers, and see whether the promises hold."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

from clients.aio import ClientError
from clients.arguments import address
from clients.launch import LaunchError
from clients.replay import say

from .embedded import NoSpeech, trials
from .machine import machine
from .report import table
from .run import (
    KINDS,
    OF_SERVER,
    STALLING,
    Leak,
    Result,
    Target,
    controls,
    looks,
    run_all,
    scenarios,
    settled,
    warm,
)

EXIT_OK, EXIT_FAULT, EXIT_USAGE, EXIT_NO_SERVER = 0, 1, 2, 3


def main(argv: Sequence[str]) -> int:
    """0: every promise held; 1: one did not, its seed and number are named; 2: unusable arguments; 3: no
    server."""
    options = _parser().parse_args(argv)
    try:
        return asyncio.run(_chaos(options))
    except NoSpeech as error:
        say(str(error))
        return EXIT_USAGE
    except (LaunchError, ClientError, OSError) as error:
        say(f"no server: {error}")
        return EXIT_NO_SERVER
    except KeyboardInterrupt:
        say("stopped")
        return EXIT_FAULT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="seamscribe chaos", description="Seeded faults, and whether the promises held."
    )
    parser.add_argument("--url", type=address, metavar="U", help="a running server (default: starts its own)")
    parser.add_argument(
        "--model", metavar="M", help="its own server uses the embedded engine with this model"
    )
    parser.add_argument("--scenarios", type=int, default=100, metavar="N", help="how many (100)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="another seed, other scenarios (1)")
    parser.add_argument("--only", type=int, metavar="N", help="this scenario of the seed alone")
    parser.add_argument("--kind", action="append", choices=KINDS, help="of these kinds only (repeat)")
    parser.add_argument("--at-once", type=int, default=16, metavar="N", help="scenarios at a time (16)")
    return parser


async def _chaos(options: argparse.Namespace) -> int:
    count = options.scenarios if options.only is None else options.only + 1
    kinds = [
        kind
        for kind in options.kind or KINDS
        if not (options.url and (kind in OF_SERVER or kind == STALLING))
        and not (options.model and kind == STALLING)
    ]
    chosen = [s for s in scenarios(options.seed, count, kinds) if options.only in (None, s.number)]
    if not chosen:
        say("no scenario is left: another --only, --kind or --scenarios (a server of others is not killed)")
        return EXIT_USAGE
    if options.model and options.only is None:
        chosen += controls(options.seed, count, len(chosen))
        random.Random(options.seed).shuffle(chosen)  # the controls meet the same load
    begun = time.monotonic()
    async with AsyncExitStack() as stack:
        engine = ("--engine", "local", "--model", options.model) if options.model else ("--engine", "fake")
        server = options.url or await stack.enter_async_context(machine(*engine))
        url = server if isinstance(server, str) else server.url
        watched = {"server": looks(server)}
        stalling = ""
        if not isinstance(server, str) and any(s.kind == STALLING for s in chosen):
            stalls = await stack.enter_async_context(machine("--engine", "fake", "--model", "stalling"))
            stalling, watched["server that stalls"] = stalls.url, stalls.level
        target = Target(url, stalling, trial=await trials(url, engine, model=bool(options.model)))
        for each in filter(None, (url, stalling)):
            await warm(each, target.trial())
        before = {name: await look() for name, look in watched.items()}
        results = await run_all(target, chosen, options.at_once, _tell)
        leaks = [await settled(name, look, before[name]) for name, look in watched.items()]
    sys.stdout.write(table(results, leaks, time.monotonic() - begun))
    return _status(results, leaks)


def _tell(result: Result) -> None:
    s = result.scenario
    for fault in result.trial.faults:
        say(f"{s.kind}: {fault}\n  again: seamscribe chaos --seed {s.seed} --only {s.number}")


def _status(results: Sequence[Result], leaks: Sequence[Leak]) -> int:
    held = all(not r.trial.faults for r in results) and all(not leak.problems for leak in leaks)
    return EXIT_OK if held else EXIT_FAULT
