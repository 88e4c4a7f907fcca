"""Who uses the cores while a load runs: the processes of a machine, by what they are to a measurement."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

PERIOD_S = 2.0
"""Seconds between two looks."""

KINDS = (
    ("scheduler", b"sglang::scheduler"),
    ("detokenizer", b"sglang::detokenizer"),
    ("tokenizer", b"sglang::tokenizer"),
    ("tokenizer", b"sglang.launch_server"),
    ("front", b"--inherit"),
    ("speakers", b"multiprocessing.spawn"),
)
"""A kind is the first whose mark stands in the command line. SGLang's HTTP server is its tokenizer, too,
where it has but one."""
OTHERS = "others"


def kind_of(command: bytes) -> str:
    """What a process is, by its command line."""
    return next((kind for kind, mark in KINDS if mark in command), OTHERS)


def processes(proc: Path = Path("/proc")) -> dict[int, tuple[str, float]]:
    """Each process's kind and CPU seconds, children apart."""
    found: dict[int, tuple[str, float]] = {}
    ticks = os.sysconf("SC_CLK_TCK")
    for entry in os.scandir(proc):
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                # The name stands in brackets and may hold anything; the numbers follow the last one.
                line = Path(entry.path, "stat").read_text("utf-8", "replace")
                numbers = line.rpartition(")")[2].split()
                kind = kind_of(Path(entry.path, "cmdline").read_bytes())
                found[int(entry.name)] = (kind, (int(numbers[11]) + int(numbers[12])) / ticks)
    return found


@dataclass(slots=True)
class Cores:
    """Cores in use between two looks, by kind: of all such processes, and of the busiest."""

    at_s: float
    """Seconds since the block began."""
    all: dict[str, float] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        return sum(self.all.values())

    def __str__(self) -> str:
        kinds = sorted(self.all.items(), key=lambda entry: -entry[1])
        named = ", ".join(
            f"{kind} {cores:.1f} (one {self.most[kind]:.2f})" for kind, cores in kinds if cores >= 0.05
        )
        return f"{self.total:.1f} cores at {self.at_s:.0f} s: {named}"


def between(
    before: dict[int, tuple[str, float]], after: dict[int, tuple[str, float]], passed_s: float, at_s: float
) -> Cores:
    """What was used in the `passed_s` between two looks."""
    found = Cores(at_s)
    for pid, (kind, spent) in after.items():
        cores = max(0.0, spent - before.get(pid, (kind, 0.0))[1]) / passed_s
        found.all[kind] = found.all.get(kind, 0.0) + cores
        found.most[kind] = max(found.most.get(kind, 0.0), cores)
    return found


@asynccontextmanager
async def by_kind() -> AsyncIterator[list[Cores]]:
    """Look every `PERIOD_S` for as long as the block lasts; the list grows meanwhile."""
    found: list[Cores] = []
    watch = asyncio.create_task(_watch(found))
    try:
        yield found
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


async def _watch(found: list[Cores]) -> None:
    loop = asyncio.get_running_loop()
    began = at = loop.time()
    before = processes()
    while True:
        await asyncio.sleep(PERIOD_S)
        now, after = loop.time(), processes()
        found.append(between(before, after, now - at, now - began))
        before, at = after, now
