"""An event loop whose clock jumps: hours pass in milliseconds, and a deadlock is an error.

Only `loop.time()` is virtual; nothing under test may read another clock, nor use threads or sockets.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    """Instead of waiting, tells the loop how long it would have waited."""

    waited = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("deadlock: nothing is scheduled and nothing can happen")
            # A nanosecond more, or rounding may leave the timer just short of due for ever.
            self.waited += max(timeout, 0.0) + (1e-9 if timeout else 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.waited

    def freeze(self, seconds: float) -> None:
        """The process is stopped for so long, as by SIGSTOP: time passes, and nothing runs."""
        self._virtual.waited += seconds

    def spend(self, seconds: float) -> None:
        """The process is at work for so long, and nothing else is done meanwhile."""
        self._virtual.waited += seconds


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end in virtual time; raises RuntimeError on a deadlock."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


async def settle(rounds: int = 20) -> None:
    """Let everything run that can run without time passing."""
    for _ in range(rounds):
        await asyncio.sleep(0)
