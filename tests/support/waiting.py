"""Waiting for what sets no event: a thread, another process, a list that grows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

POLL_S = 0.01
"""Of the loop's clock: nothing in virtual time."""


async def until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    """Return once it holds; raises TimeoutError where it does not for so long."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - the one place that has to poll
            await asyncio.sleep(POLL_S)
