"""Calls that block while a store is slow or hangs, in threads of their own: audio is judged in others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

THREADS = 4

PATIENCE_S = 10.0
"""Whoever asks waits so long, behind others who ask too."""


class Asking:
    """Carries out at most `THREADS` calls at once."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="asking")

    async def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function returns; raises what it raises, and TimeoutError. Who asks no more leaves the
        queue."""
        async with asyncio.timeout(PATIENCE_S):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._pool, partial(function, *arguments))
