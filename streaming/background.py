"""Work beside what somebody waits for. Every task here ends with the block or the call that began it, also
where that is cancelled, and no error goes unheard."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

logger = logging.getLogger("seamscribe")


@asynccontextmanager
async def background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do the work, which has no end, for as long as the block lasts. If it fails it is logged, once."""
    task = asyncio.create_task(_logged(work))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def first_of(*works: Coroutine[Any, Any, object]) -> None:
    """Do all until one of them ends; the others are cancelled then. Raises what the first of them raised, if
    one did, in the order given."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        logger.exception("upkeep failed and is not done any more")
