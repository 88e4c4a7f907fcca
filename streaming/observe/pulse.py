"""Whether the engine lives, as whoever spreads load over servers wants to know it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from engine.contract import EngineError

AGAIN_S = 1.0
"""An answer holds for so long: anybody may ask us, and not every question shall reach the engine."""

PATIENCE_S = 2.0
"""An engine that takes longer to say that it lives does not."""


async def always() -> bool:
    """An engine that does not say lives with its process."""
    return True


class Pulse:
    """Asks once, however many want to know at the same time."""

    def __init__(self, ask: Callable[[], Awaitable[bool]] = always) -> None:
        self._ask = ask
        self._asking: asyncio.Task[bool] | None = None
        self._asked = 0.0

    async def beats(self) -> bool:
        """Whether the engine would begin a task, as of `AGAIN_S` ago at most; within `PATIENCE_S`."""
        now = asyncio.get_running_loop().time()
        if self._asking is None or (self._asking.done() and now - self._asked >= AGAIN_S):
            self._asked = now
            self._asking = asyncio.create_task(self._feel())
        return await asyncio.shield(self._asking)

    async def _feel(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._ask()
        except (TimeoutError, OSError, EngineError):
            return False
