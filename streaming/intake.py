"""One client's bytes to frames with their voice activity."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from engine.contract import FRAME, SAMPLE_RATE, Audio, SpeechDetector, Voice

from .audio import AudioDecoder
from .wire.messages import AudioFormat

SLICE = SAMPLE_RATE
"""Samples judged in one go: between two slices of a large packet other sessions get their turn."""

INLINE = SAMPLE_RATE // 4
"""Up to this many samples the detector runs in the event loop. Measured: 0.07 ms a frame, so 0.9 ms here;
a thread and back costs 0.05-0.1 ms, more than it saves on packets of 20-100 ms. Larger pieces go to one."""


class Intake:
    """Decodes, cuts into frames, judges. Used by one task at a time, for the detector keeps state."""

    def __init__(self, format: AudioFormat, detector: SpeechDetector, inline: int = INLINE) -> None:
        self._inline = inline
        self._decoder = AudioDecoder(format)
        self._voices = detector.open()

    async def feed(self, data: bytes) -> AsyncIterator[tuple[Audio, list[Voice]]]:
        """Whole frames with their verdicts, at most `SLICE` samples at a time; raises `ProtocolError`."""
        frames = self._decoder.feed(data)
        for start in range(0, frames.size, SLICE):
            piece = frames[start : start + SLICE]
            if piece.size <= self._inline:
                yield piece, self._voices.feed(piece)
            else:
                yield piece, await asyncio.to_thread(self._voices.feed, piece)

    def finish(self) -> tuple[Audio, list[Voice], Audio]:
        """The last frames (a resampler's rest, 0.12 s at most), their verdicts and the tail of fewer than
        `FRAME` samples."""
        frames, tail = self._decoder.finish()
        return frames, self._voices.feed(frames) if frames.size >= FRAME else [], tail
