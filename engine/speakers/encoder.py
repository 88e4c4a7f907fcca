"""The speaker encoder: the networks in worker threads, off the event loop; `README.md` has the figures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import BoundedSemaphore
from typing import TypeVar

from engine.contract import SAMPLE_RATE, Audio, EngineError, SpeakerTask, SpeakerTraits, SpeakerWindow, Vector

from . import weights
from .reader import DIMENSION, EncoderSettings, Networks, WindowReader, load

T = TypeVar("T")


class Encoder:
    """A `SpeakerEncoder` over worker threads; its queue is bounded and every task has a deadline."""

    def __init__(self, networks: Networks, settings: EncoderSettings | None = None) -> None:
        self._settings = settings or EncoderSettings()
        self._reader = WindowReader(networks, self._settings)
        self._pool = ThreadPoolExecutor(self._settings.threads, thread_name_prefix="speakers")
        self._places = BoundedSemaphore(self._settings.queue)
        self._closed = False
        self.counters: dict[str, float] = dict.fromkeys(
            ("speaker_windows", "speaker_audio_s", "speaker_cpu_s", "speaker_refused", "speaker_late"), 0.0
        )
        """Work done: windows, seconds of audio and of CPU; tasks refused and given up. CPU over audio is the
        cost of an audio second."""

    @property
    def traits(self) -> SpeakerTraits:
        return SpeakerTraits("campplus-zh-en", DIMENSION, self._settings.window_s, self._settings.same)

    async def voices(self, task: SpeakerTask) -> SpeakerWindow:
        """The voices of a window.

        Raises `EngineError`: "rejected" (too long), "overloaded", "deadline", "closed", "speakers".
        """
        return await self._run(lambda: self._reader.voices(task), len(task.audio))

    async def embed(self, audio: Audio) -> Vector | None:
        """The vector of the one voice in `audio`; None under a second of speech. Raises as `voices` does."""
        return await self._run(lambda: self._reader.embed(audio), len(audio))

    async def close(self) -> None:
        """Start no more tasks, fail the queued ones, wait for the running; later calls do nothing."""
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)

    async def _run(self, work: Callable[[], T], samples: int) -> T:
        if self._closed:
            raise _closed()
        if not self._places.acquire(blocking=False):
            self.counters["speaker_refused"] += 1
            text = f"{self._settings.queue} windows wait for the speaker encoder"
            raise EngineError("overloaded", text, retryable=True)
        future = self._pool.submit(_timed, work)
        # A task that was given up keeps its place for as long as a thread works on it.
        future.add_done_callback(lambda _: self._places.release())
        try:
            async with asyncio.timeout(self._settings.deadline_s):
                found, cpu_s = await asyncio.wrap_future(future)
        except TimeoutError:
            self.counters["speaker_late"] += 1
            text = f"no voices within {self._settings.deadline_s:g} s"
            raise EngineError("deadline", text, retryable=True) from None
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if self._closed and waiting is not None and not waiting.cancelling():
                raise _closed() from None
            raise
        self.counters["speaker_windows"] += 1
        self.counters["speaker_audio_s"] += samples / SAMPLE_RATE
        self.counters["speaker_cpu_s"] += cpu_s
        return found


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """The result and the thread's CPU seconds; whatever an adapter may throw becomes an `EngineError`."""
    begun = time.thread_time()
    try:
        return work(), time.thread_time() - begun
    except EngineError:
        raise
    except Exception as error:  # the runtime's own errors have no common base
        raise EngineError("speakers", f"the speaker networks failed: {error}", retryable=False) from error


def _closed() -> EngineError:
    return EngineError("closed", "the speaker encoder is shut down", retryable=False)


def open_encoder(settings: EncoderSettings | None = None) -> Encoder:
    """The encoder with its packaged networks; raises `EngineError`, with the remedy, without them."""
    return Encoder(load(weights.find()), settings)
