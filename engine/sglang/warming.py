"""The first request that an engine answers, before anybody speaks.

What it compiles then keeps everybody waiting: SGLang-Omni 0.1.3 took ten seconds for its first output on an
H200, and words that had been said meanwhile came twelve seconds late. SGLang 0.5.17 took 98 s for the first
output with a temperature, of which the retry ladder has one, and answered nobody meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np

from engine.contract import NOT_TAKEN, SAMPLE_RATE, EngineError, Priority, RecognitionTask
from engine.tuning import logger

from .transport import STALLED

TOKENS = 8
"""Of output at most: one prefill and some steps of decoding are all that is wanted."""
DRAWN = 2
"""Attempt whose tokens are drawn and not the likeliest, on every ladder that has such a step."""
_LIMIT_S = 180.0
_PAUSE_S = 1.0
_AUDIO_S = 2.0
_LOUDNESS = 0.05


def first_task(language: str | None) -> RecognitionTask:
    """Noise, for silence is not sent."""
    noise = np.random.default_rng(0).normal(0.0, _LOUDNESS, round(_AUDIO_S * SAMPLE_RATE))
    audio = noise.astype(np.float32)
    return RecognitionTask("warm-up", "warm-up", audio, 0, Priority.BATCH, language=language)


class Warming:
    """Has engines answer once. `done` is whether they did, or whether asking again would not help."""

    def __init__(self, asks: Callable[[], Awaitable[object]]) -> None:
        """`asks` has every engine answer, and raises `EngineError`."""
        self.done = False
        self._asks = asks
        self._running: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Returns when they have answered, or cannot: never raises, within three minutes. Many may wait for
        it."""
        await asyncio.shield(self.begin())

    def begin(self) -> asyncio.Task[None]:
        """Ask, if nobody does already."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._ask())
        return self._running

    def cancel(self) -> None:
        if self._running is not None:
            self._running.cancel()

    async def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(_LIMIT_S):
                while (stalled := await self._stalled()) is not None:
                    logger.info("the engine is asked its first request again: %(error)s", {"error": stalled})
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            logger.warning(
                "the engine's first request was not answered within %(limit)g s", {"limit": _LIMIT_S}
            )
            return
        except EngineError as error:
            logger.warning("the engine's first request failed: %(error)s", {"error": error})
            # One that is not there yet is asked again; one that refuses is there.
            self.done = error.cause not in NOT_TAKEN
            return
        self.done = True
        logger.info("the engine answered its first request after %(took).1f s", {"took": loop.time() - began})

    async def _stalled(self) -> EngineError | None:
        """Ask; what tells that an engine works on it for longer than requests are waited for, if one does."""
        try:
            await self._asks()
        except EngineError as error:
            if error.cause != STALLED:
                raise
            return error
        return None
