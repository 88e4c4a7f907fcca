"""The door for new sessions: looks twice a second at engine, delays and memory, and has `Capacity` decide."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from engine.dispatcher import Load
from streaming.background import background
from streaming.errors import Congested
from streaming.observe.metrics import Histogram, Metrics
from streaming.settings import AdmissionSettings

from .capacity import Capacity, Look, Rules

logger = logging.getLogger("seamscribe")

LOOK_S = 0.5
LOOKS = 20
"""Delays of the last so many looks count."""

FEW = 20
"""Delays from which a percentile says something."""

MEMORY_SHARE = 0.9
"""Of the memory there is, where the settings name none."""


class Engine(Protocol):
    """What is looked at of a dispatcher."""

    @property
    def load(self) -> Load: ...


class Recent:
    """A histogram's last seconds."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._marks = deque([histogram.counts], maxlen=LOOKS + 1)

    def quantile(self, share: float) -> float | None:
        """The value that `share` of all since `LOOKS` calls ago were below; None where they are few."""
        self._marks.append(self._histogram.counts)
        counts = [new - old for new, old in zip(self._marks[-1], self._marks[0], strict=True)]
        return self._histogram.quantile(share, counts) if sum(counts) >= FEW else None


class Admission:
    """Belongs to one event loop."""

    def __init__(
        self,
        settings: AdmissionSettings,
        retry_after_s: float,
        engine: Engine,
        concurrency: int,
        metrics: Metrics,
        memory: Callable[[], int],
    ) -> None:
        """`memory` is what this process has, bytes; `concurrency` how much the engine does at once."""
        rules = Rules(
            settings.stretch,
            settings.queue_s,
            settings.commit_s,
            settings.commit_ratio,
            settings.burst or 2 * concurrency,
        )
        self._loop = asyncio.get_running_loop()
        self._capacity = Capacity(rules, self._loop.time())
        self._on = settings.on
        self._retry_after_ms = round(retry_after_s * 1000)
        self._engine, self._concurrency = engine, concurrency
        self._metrics = metrics
        self._memory = memory
        self._most_memory = settings.memory_bytes or MEMORY_SHARE * memory_there_is()
        self._queue, self._commit = Recent(metrics.queue_time), Recent(metrics.commit_delay)
        self._received, self._engine_s = metrics.live_audio_s, metrics.live_engine_s
        self._at = self._loop.time() - LOOK_S
        self._closed: str | None = None

    def admit(self, *, recording: bool = False) -> None:
        """One more session begins; raises `Congested` where it would harm those that run."""
        if (refusal := self.refusal(recording=recording)) is not None:
            raise refusal
        if not recording:
            self._capacity.admit(self._loop.time())

    def refusal(self, *, recording: bool = False) -> Congested | None:
        """What a new client would be told now. A `recording`, which takes what the live ones leave of the
        engine, is kept out by what harms those already alone."""
        capacity = self._capacity
        cause = capacity.closed if recording else capacity.refusal(self._loop.time())
        cause = cause if self._on else None
        return None if cause is None else Congested(cause, self._retry_after_ms)

    def look(self) -> None:
        """Measure, now."""
        now, metrics, load = self._loop.time(), self._metrics, self._engine.load
        received, engine_s, memory = metrics.live_audio_s, metrics.live_engine_s, self._memory()
        passed = max(now - self._at, 1e-3)
        self._capacity.look(
            Look(
                busy=(engine_s - self._engine_s) / (passed * self._concurrency),
                stretch=load.stretch,
                queue_s=max(self._queue.quantile(0.95) or 0.0, load.oldest_s),
                commit_s=self._commit.quantile(0.95),
                audio_rate=(received - self._received) / passed,
                memory=memory / self._most_memory,
                slow=load.slow,
            ),
            now,
        )
        self._received, self._engine_s, self._at = received, engine_s, now
        self._tell(memory)

    def _tell(self, memory: int) -> None:
        refusal = self.refusal()
        self._metrics.open.set(refusal is None)
        self._metrics.used.set(self._capacity.used)
        self._metrics.demand.set(self._capacity.demand)
        self._metrics.memory.set(memory)
        self._metrics.most_memory.set(self._most_memory)
        if (closed := self._capacity.closed) != self._closed:
            self._closed = closed
            if closed is None:
                logger.info("new sessions are taken again")
            else:
                logger.info("new sessions are refused: %(cause)s", {"cause": closed})

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Look for as long as the block lasts."""
        async with background(self._watch()):
            yield

    async def _watch(self) -> None:
        while True:
            try:
                self.look()
            except OSError as error:  # /proc is full of surprises; the last look holds
                logger.warning("the load cannot be measured: %(error)s", {"error": error})
            await asyncio.sleep(LOOK_S)


def memory_used() -> int:
    """Resident memory of this process, bytes; 0 where the system does not tell (no /proc)."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except (FileNotFoundError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def memory_there_is() -> int:
    """The machine's memory, or what the container may have of it; bytes."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for place in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # no such control group, or "max"
            return min(physical, int(Path("/sys/fs/cgroup", place).read_text(encoding="ascii")))
    return physical
