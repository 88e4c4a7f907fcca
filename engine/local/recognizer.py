"""The embedded engine: CTranslate2 on CPU threads, off the event loop.

One worker thread a core, each with a single compute thread: int8 decoding gets slower with more, and two
tasks on two cores finish sooner than one after the other on both.
"""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from engine.contract import Capabilities, EngineError, Hypothesis, RecognitionTask
from engine.weights import find_weights

from .decoder import LocalDecoder
from .settings import DecodeSettings

SWITCH_S = 0.0005
"""A thread that wants the interpreter's lock gets it after so long from one that computes in Python. A decode
wants it twenty times and more, a step each: at the interpreter's own 5 ms, beside a busy thread and on cores
that others use too, two workers did 4.9 decodes a second instead of 7.2."""


class Decoder(Protocol):
    """A blocking recogniser that several threads may call at once."""

    @property
    def capabilities(self) -> Capabilities: ...

    def decode(self, task: RecognitionTask) -> Hypothesis: ...

    def close(self) -> None: ...


class LocalRecognizer:
    """A `Recognizer` over `capabilities.concurrency` worker threads.

    Waiting tasks queue without bound: the dispatcher in front keeps no more in flight than there are
    workers. `decode` is the same work in the calling thread.
    """

    def __init__(self, decoder: Decoder, *, deadline_s: float) -> None:
        self._decoder = decoder
        self._deadline_s = deadline_s
        self._pool = ThreadPoolExecutor(decoder.capabilities.concurrency, thread_name_prefix="recognizer")
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        return self._decoder.capabilities

    def decode(self, task: RecognitionTask) -> Hypothesis:
        """Decode in the calling thread; raises `EngineError` as the decoder does."""
        return self._decoder.decode(task)

    async def recognize(self, task: RecognitionTask) -> Hypothesis:
        """Decode in a worker thread; cancelling drops a queued task and ignores a running one's result.

        Raises `EngineError`: "deadline" and "closed" besides those of `decode`. A running decode cannot be
        stopped: after a deadline its worker is free only when it is done.
        """
        if self._closed:
            raise _closed()
        work = self._pool.submit(self._decoder.decode, task)
        try:
            async with asyncio.timeout(self._deadline_s):
                return await asyncio.wrap_future(work)
        except TimeoutError:
            raise EngineError(
                "deadline", f"no result within {self._deadline_s:g} s", retryable=True
            ) from None
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if self._closed and waiting is not None and not waiting.cancelling():
                raise _closed() from None
            raise

    async def close(self) -> None:
        """Start no more tasks, fail the queued ones, wait for the running; later calls do nothing."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)
        self._decoder.close()


def _closed() -> EngineError:
    return EngineError("closed", "the engine is shut down", retryable=False)


def open_recognizer(model: str, threads: int = 0, settings: DecodeSettings | None = None) -> LocalRecognizer:
    """Load `model`: a packaged name, a folder, or a hub name. `threads` 0 takes every core. Makes the whole
    process pass on the interpreter's lock sooner (`SWITCH_S`).

    Raises `WeightsError` where the weights are missing or altered, and `EngineError` as `LocalDecoder` does.
    """
    chosen = settings or DecodeSettings()
    count = threads if threads > 0 else os.cpu_count() or 1
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_S))
    decoder = LocalDecoder(find_weights(model), name=model, threads=count, settings=chosen)
    return LocalRecognizer(decoder, deadline_s=chosen.deadline_s)
