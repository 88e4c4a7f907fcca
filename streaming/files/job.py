"""A recording as a session without a socket: the same segmenter, context and engine as live audio, as fast as
the engine has time for it. Its decodes give way to all that is live (`Priority.BATCH`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import BinaryIO

import msgspec

from engine.contract import SAMPLE_RATE
from streaming.access.quota import Lease
from streaming.access.tokens import fresh_id
from streaming.audio.container import file_samples
from streaming.denial import COME_BACK, Refusal, status_of
from streaming.kept.log import Cursor, Said
from streaming.sessions.beginning import begin
from streaming.sessions.services import Services
from streaming.wire.errors import CloseCode
from streaming.wire.messages import Audio, AudioFormat, Encoding, End, Start

PROGRESS_S = 2.0
"""How far it is, is told so often where nothing else is."""
PACKET = 16 * SAMPLE_RATE
"""Bytes that a session is given at once: four seconds of one track."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What shall be heard, and how."""

    file: BinaryIO
    start: Start
    """Its `audio` says what the file is: a container, whose channels are mixed down unless they are its
    `tracks`, or bare samples."""
    translate: bool = False
    """Whether English is wanted, whatever is spoken."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Seconds of the recording that are transcribed, of those that were read so far."""

    done_s: float
    read_s: float


class Job:
    """One recording. It has begun once this exists; raises `WireError` where it cannot. `close` it."""

    def __init__(
        self, asked: Asked, services: Services, lease: Lease, traceparent: str | None = None
    ) -> None:
        start, file = asked.start, asked.file
        if start.audio.encoding is Encoding.CONTAINER:
            tracks = len(start.tracks) or 1
            start = msgspec.structs.replace(start, audio=AudioFormat(Encoding.PCM_F32LE, channels=tracks))
            self._packets = _decoded(file, tracks)
        else:
            self._packets = iter(lambda: file.read(PACKET), b"")
        self.entry, self._live = begin(
            start,
            replace(services, batch=True, translate=asked.translate),
            lease,
            guest=fresh_id(),
            traceparent=traceparent,
        )
        self._news = asyncio.Event()
        self.entry.waiting.add(self._news)
        self._cursor = Cursor(self.entry.log)
        self._live.attach(self)
        self._feeding = asyncio.create_task(self._feed())

    async def said(self) -> AsyncGenerator[Said | Progress, None]:
        """All that the session says, to its end; while it says nothing, how far it is, where that is known.
        Raises `WireError` where the file is no recording, `Refusal` unless all became text or silence."""
        told = 0
        while True:
            self._news.clear()
            while (message := self._cursor.take()) is not None:
                yield message
            if self.entry.outcome is not None:
                break
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), PROGRESS_S)
            if self._live.decodes.reached > told and not self._news.is_set():
                told = self._live.decodes.reached
                yield Progress(told / SAMPLE_RATE, self._live.received / SAMPLE_RATE)
        await self._feeding
        self._check()

    async def close(self) -> None:
        """Nobody waits for the rest: what was not decoded yet is not decoded any more. Again: nothing."""
        self._feeding.cancel()
        self.entry.waiting.discard(self._news)
        self._live.detach(self, for_good=True)
        if self.entry.outcome is None:
            self._live.give_up()
        # What was wrong with the file is told by `said`, to whoever still listens.
        await asyncio.gather(self._feeding, return_exceptions=True)

    # -- as the session's client -----------------------------------------------------------------

    @property
    def behind(self) -> bool:
        return False

    def acknowledge(self, sample: int, durable: int) -> None: ...

    def replace(self) -> None: ...

    # -- the file --------------------------------------------------------------------------------

    async def _feed(self) -> None:
        try:
            while (packet := await asyncio.to_thread(next, self._packets, None)) is not None:
                await self._live.room()
                if self._live.failed or self.entry.outcome is not None:
                    return
                self._live.take(Audio(packet))
        finally:
            if self.entry.outcome is None and not self._live.failed:
                self._live.take(End())

    def _check(self) -> None:
        outcome, log = self.entry.outcome, self.entry.log
        assert outcome is not None
        if outcome.code != CloseCode.NORMAL:
            status = status_of(outcome.code, outcome.reason)
            raise Refusal(
                status,
                f"the transcription ended early: {outcome.reason}",
                code=outcome.reason,
                retry_after_s=1.0 if status in COME_BACK else None,
            )
        if log.gaps:
            lost = ", ".join(
                f"{g.start_ms / 1000:g}-{g.end_ms / 1000:g} s ({g.cause})" for g in log.gaps[:20]
            )
            raise Refusal(
                500,
                f"no text could be made of {lost}; nothing is answered, for it would not be whole: try again",
                code="incomplete",
            )


def _decoded(file: BinaryIO, tracks: int) -> Iterator[bytes]:
    """float32 at 16 kHz, one sample of each track after the other."""
    waiting, held = list[bytes](), 0
    for samples in file_samples(file, tracks):
        waiting.append(samples.astype("<f4").tobytes())
        held += len(waiting[-1])
        if held >= PACKET:
            yield b"".join(waiting)
            waiting, held = [], 0
    yield b"".join(waiting)
