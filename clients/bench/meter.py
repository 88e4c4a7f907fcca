"""CPU time and memory of a process and its children, sampled from outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psutil

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sample:
    """Since the process tree began: CPU seconds used; and its memory now, in MiB."""

    cpu_s: float
    rss_mib: float


@dataclass(slots=True)
class Meter:
    """What was measured between the block's start and end."""

    first: Sample
    last: Sample
    max_rss_mib: float

    @property
    def cpu_s(self) -> float:
        return self.last.cpu_s - self.first.cpu_s


def sample(pid: int) -> Sample | None:
    """One look at the tree, None once its root is gone; a child that ends meanwhile counts as nothing."""
    cpu, rss = 0.0, 0
    try:
        root = psutil.Process(pid)
        tree = [root, *root.children(recursive=True)]
    except psutil.Error:
        return None
    for process in tree:
        try:
            times = process.cpu_times()
            cpu += times.user + times.system
            rss += process.memory_info().rss
        except psutil.Error:
            continue
    return Sample(cpu, rss / MIB)


@asynccontextmanager
async def metering(pid: int, *, every_s: float = 1.0) -> AsyncIterator[Meter]:
    """Measure the tree of `pid` while the block runs."""
    first = sample(pid) or Sample(0.0, 0.0)
    meter = Meter(first, first, first.rss_mib)

    async def look() -> None:
        while True:
            await asyncio.sleep(every_s)
            _note(meter, sample(pid))

    task = asyncio.create_task(look())
    try:
        yield meter
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        _note(meter, sample(pid))


def _note(meter: Meter, now: Sample | None) -> None:
    if now is None:
        return
    meter.last = now
    meter.max_rss_mib = max(meter.max_rss_mib, now.rss_mib)
