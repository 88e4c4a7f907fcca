"""Many scenarios, some at a time, each from its own seed; then whether the server is as it was before."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from websockets.exceptions import WebSocketException

from clients.aio import ClientError
from clients.launch import LaunchError

from . import aborts, crashes, faults
from .machine import RESUME_S, Level, Machine, level
from .talk import Trial

LIMIT_S = 240.0
"""A scenario that takes longer hangs."""

POOL = min(32, (os.cpu_count() or 1) + 4)
"""Threads of asyncio's pool, which come when they are first needed and stay."""

BLOCKS = 0.1
"""Share by which Python's memory may have grown: caches, and sessions that ended lately. Resident memory
tells nothing of leaks, for the allocator keeps what the busiest moment took."""

Lines = Callable[[str, random.Random, Trial], Awaitable[None]]
Crashes = Callable[[random.Random, Trial], Awaitable[None]]

ON_LINE: dict[str, Lines] = {
    "cut": faults.cut,
    "half-open": faults.half_open,
    "takeover": faults.takeover,
    "ragged": faults.ragged,
    "slow reader": faults.slow,
    "reader cut": faults.reader,
    "burst": faults.burst,
    "abort": aborts.abort,
    "crowd": aborts.crowd,
    "engine stalls": faults.plain,
}
OF_SERVER: dict[str, Crashes] = {
    "kill -9": crashes.kill,
    "freeze": crashes.freeze,
    "full disk": crashes.full_disk,
}
KINDS = (*ON_LINE, *OF_SERVER)
CONTROL = "no fault"
"""Beside the others where only a run without faults tells the words: timing alone changes some of them."""
CONTROLS = 1 / 3
"""So many for each scenario with a fault."""
WEIGHTS = {"cut": 5, "abort": 5, "takeover": 2, "ragged": 2, "engine stalls": 2, "reader cut": 2}
CYCLE = tuple(kind for kind in KINDS for _ in range(WEIGHTS.get(kind, 1)))
"""Scenario n is of kind n modulo its length."""
STALLING = "engine stalls"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One of a run: the same seed and number are the same scenario."""

    seed: int
    number: int
    kind: str

    def random(self) -> random.Random:
        return random.Random(f"{self.seed}/{self.number}")


@dataclass(frozen=True, slots=True)
class Result:
    scenario: Scenario
    trial: Trial
    took_s: float


@dataclass(frozen=True, slots=True)
class Target:
    """Servers to be broken: `url` stands through the whole run, `stalling` has an engine that stalls. Empty:
    there is none, and its kinds are left out."""

    url: str
    stalling: str = ""
    trial: Callable[[], Trial] = Trial


@dataclass(slots=True)
class Leak:
    """One server before and after."""

    name: str
    before: Level
    after: Level
    problems: list[str] = field(default_factory=list)


def scenarios(seed: int, count: int, kinds: Sequence[str]) -> Iterator[Scenario]:
    """The first `count` of this seed; those of other kinds are left out."""
    for number in range(count):
        if (kind := CYCLE[number % len(CYCLE)]) in kinds:
            yield Scenario(seed, number, kind)


def controls(seed: int, first: int, chosen: int) -> list[Scenario]:
    """Those without a fault for so many chosen ones, numbered from `first` on."""
    return [Scenario(seed, first + n, CONTROL) for n in range(round(CONTROLS * chosen))]


async def run_all(
    target: Target, chosen: Sequence[Scenario], at_once: int, done: Callable[[Result], None]
) -> list[Result]:
    """Run the scenarios, `at_once` at a time; servers of our own at most two at a time."""
    gate, servers = asyncio.Semaphore(at_once), asyncio.Semaphore(2)
    results: list[Result] = []

    async def one(scenario: Scenario) -> None:
        async with AsyncExitStack() as stack:
            if scenario.kind in OF_SERVER:
                await stack.enter_async_context(servers)
            await stack.enter_async_context(gate)
            results.append(await run_one(target, scenario))
            done(results[-1])

    async with asyncio.TaskGroup() as tasks:
        for scenario in chosen:
            tasks.create_task(one(scenario))
    return results


async def run_one(target: Target, scenario: Scenario) -> Result:
    """One scenario; what goes wrong is in its trial."""
    trial, begun = target.trial(), time.monotonic()
    try:
        async with asyncio.timeout(LIMIT_S):
            if scenario.kind in OF_SERVER:
                await OF_SERVER[scenario.kind](scenario.random(), trial)
            else:
                url = target.stalling if scenario.kind == STALLING else target.url
                play = faults.none if scenario.kind == CONTROL else ON_LINE[scenario.kind]
                await play(url, scenario.random(), trial)
    except TimeoutError:
        trial.faults.append(f"not over within {LIMIT_S:.0f} s")
    except (ClientError, LaunchError, OSError, WebSocketException) as error:
        trial.faults.append(f"{type(error).__name__}: {error}")
    except ExceptionGroup as group:
        trial.faults += [f"{type(error).__name__}: {error}" for error in group.exceptions]
    return Result(scenario, trial, time.monotonic() - begun)


async def settled(name: str, look: Callable[[], Awaitable[Level]], before: Level) -> Leak:
    """Wait until sessions without a client must be over; what the server still holds then is a leak."""
    after = await look()
    for _ in range(round(RESUME_S + 30)):
        if not _held(before, after):
            break
        await asyncio.sleep(1.0)
        after = await look()
    return Leak(name, before, after, _held(before, after))


def _held(before: Level, after: Level) -> list[str]:
    found = [f"{name} is {value:g}" for name, value in after.gauges.items() if value]
    for name, value in after.counts.items():
        known = before.counts.get(name, value)
        if value > known * (1 + (BLOCKS if name == "memory_blocks" else 0)):
            found.append(f"{name} is {value:g}, {known:g} before")
    for what, old, new, spare in (
        ("open files", before.files, after.files, 0),
        ("threads", before.threads, after.threads, POOL),
    ):
        if old is not None and new is not None and new > old + spare:
            found.append(f"{new} {what}, {old} before")
    return found


async def warm(url: str, trial: Trial) -> None:
    """Have a server start what it starts only once: its thread pool and its caches."""
    for number in range(4):
        await faults.reader(url, random.Random(number), trial)


def looks(server: Machine | str) -> Callable[[], Awaitable[Level]]:
    """How to see what a server holds."""
    return (lambda: level(server)) if isinstance(server, str) else server.level
