"""One client's bytes to frames with their voice activity, track by track."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from engine.contract import FRAME, SAMPLE_RATE, Audio, SpeechDetector, Voice
from streaming.core.framing import EMPTY
from streaming.wire.messages import AudioFormat, Encoding

from .container import ContainerDecoder
from .demux import Broke
from .samples import AudioDecoder, stride

SLICE = SAMPLE_RATE
"""Samples of all tracks judged in one go: between two slices of a large packet other sessions get their
turn."""

INLINE = SAMPLE_RATE // 4
"""Up to this many samples the detector runs in the event loop. Measured: 0.07 ms a frame, so 0.9 ms here;
a thread and back costs 0.05-0.1 ms, more than it saves on packets of 20-100 ms. Larger pieces go to one."""

Frames = tuple[Audio, ...]
"""Of each track n * FRAME samples, the same n for all."""

Voices = tuple[list[Voice], ...]
"""Of each track one verdict a frame."""


class Intake:
    """Decodes, cuts into frames, judges. Used by one task at a time, for the detector keeps state.

    `tracks` is 1 (channels are mixed down) or the number of channels (each is a track).
    """

    def __init__(
        self,
        format: AudioFormat,
        detector: SpeechDetector,
        tracks: int = 1,
        inline: int = INLINE,
        broke: Broke = lambda why: None,
    ) -> None:
        """`broke` is told why a container had to be taken up again. Raises `ProtocolError` where containers
        are not taken."""
        self._inline = inline
        self._packet = min(inline, SLICE) * format.sample_rate * stride(format) // (SAMPLE_RATE * tracks)
        self._decoder = (
            ContainerDecoder(tracks, broke)
            if format.encoding is Encoding.CONTAINER
            else AudioDecoder(format, tracks)
        )
        self._streams = tuple(detector.open() for _ in range(tracks))
        self._slice = SLICE // tracks // FRAME * FRAME

    def small(self, data: bytes) -> bool:
        """Whether `at_once` may take it."""
        return len(data) <= self._packet and not isinstance(self._decoder, ContainerDecoder)

    def at_once(self, data: bytes) -> tuple[Frames, Voices]:
        """As `feed`, of a small packet, in one piece; raises `ProtocolError`."""
        assert isinstance(self._decoder, AudioDecoder), "a container is demuxed elsewhere"
        frames = self._decoder.feed(data)
        return frames, self._judge(frames)

    async def feed(self, data: bytes) -> AsyncIterator[tuple[Frames, Voices]]:
        """Whole frames with their verdicts, at most `SLICE` samples at a time; raises `ProtocolError`."""
        if isinstance(self._decoder, ContainerDecoder):
            async for frames in self._decoder.feed(data):
                async for piece in self._judged(frames):
                    yield piece
        else:
            async for piece in self._judged(self._decoder.feed(data)):
                yield piece

    async def drain(self) -> AsyncIterator[tuple[Frames, Voices]]:
        """No more bytes come: what a container's demuxer held back, before `finish`; raises like `feed`."""
        if isinstance(self._decoder, ContainerDecoder):
            async for frames in self._decoder.drain():
                async for piece in self._judged(frames):
                    yield piece

    def close(self) -> None:
        """Nothing is wanted any more."""
        if isinstance(self._decoder, ContainerDecoder):
            self._decoder.close()

    async def _judged(self, frames: Frames) -> AsyncIterator[tuple[Frames, Voices]]:
        for start in range(0, frames[0].size, self._slice):
            piece = tuple(track[start : start + self._slice] for track in frames)
            if len(piece) * piece[0].size <= self._inline:
                yield piece, self._judge(piece)
            else:
                yield piece, await asyncio.to_thread(self._judge, piece)

    def finish(self) -> tuple[Frames, Voices, tuple[Audio, ...]]:
        """The last frames (a resampler's rest, 0.12 s at most), their verdicts and of each track the tail of
        fewer than `FRAME` samples."""
        frames, tails = self._decoder.finish()
        return frames, self._judge(frames), tails

    @property
    def nothing(self) -> tuple[Audio, ...]:
        """No sample of any track."""
        return (EMPTY,) * len(self._streams)

    def _judge(self, frames: Frames) -> Voices:
        if not frames[0].size:
            return tuple([] for _ in frames)
        return tuple(stream.feed(track) for stream, track in zip(self._streams, frames, strict=True))
