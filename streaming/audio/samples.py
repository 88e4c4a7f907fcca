"""Audio bytes of one client to float32 at 16 kHz, in whole frames: mixed down to one track, or each channel
a track of its own on the same clock.

State is kept across packets (bytes of a cut sample, the resampler's filter, samples of a cut frame), so
the same bytes give the same samples however they are packed. For n samples at rate r exactly
round(n * 16000 / r) come out by the end; before it the resampler holds back at most 0.12 s.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import soxr

from engine.contract import SAMPLE_RATE, Audio
from streaming.core.framing import Framer
from streaming.wire.errors import ProtocolError
from streaming.wire.messages import WIDTHS, AudioFormat, Encoding

_LOUDEST = 64.0
"""Float samples beyond this are no audio but another encoding; up to it they are clipped to [-1, 1]."""


def _mulaw_table() -> Audio:
    code = ~np.arange(256, dtype=np.uint8)
    exponent, mantissa = (code >> 4) & 7, (code & 15).astype(np.int32)
    magnitude = (((mantissa << 3) + 0x84) << exponent) - 0x84
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.float32) / np.float32(32768)


def _alaw_table() -> Audio:
    code = np.arange(256, dtype=np.uint8) ^ 0x55
    exponent, mantissa = (code >> 4) & 7, (code & 15).astype(np.int32)
    low = (mantissa << 4) + 8
    magnitude = np.where(exponent == 0, low, (low + 0x100) << np.maximum(exponent.astype(np.int32) - 1, 0))
    # In A-law the sign bit set means positive.
    return np.where(code & 0x80, magnitude, -magnitude).astype(np.float32) / np.float32(32768)


_TABLES = {Encoding.MULAW: _mulaw_table(), Encoding.ALAW: _alaw_table()}


def stride(format: AudioFormat) -> int:
    """Bytes of one sample of all channels; of a container single bytes."""
    return WIDTHS[format.encoding] * format.channels if format.encoding in WIDTHS else 1


class Frames:
    """Samples of `tracks` at some rate to whole frames at 16 kHz. State is kept across pieces; at another
    rate than 16 kHz the newest 0.12 s, at most, are held back."""

    def __init__(self, tracks: int) -> None:
        self._tracks = tracks
        self._rate = SAMPLE_RATE
        self._resampler: soxr.ResampleStream | None = None
        self._framers = tuple(Framer() for _ in range(tracks))

    def feed(self, samples: Audio, rate: int) -> tuple[Audio, ...]:
        """(n, tracks) to all whole frames now complete: of each track n * FRAME samples, read-only."""
        if rate != self._rate:
            samples = np.concatenate((self._flushed(), self._turned(samples, rate)))
        elif self._resampler is not None:
            samples = self._resampled(samples, last=False)
        return self._framed(samples)

    def finish(self) -> tuple[tuple[Audio, ...], tuple[Audio, ...]]:
        """As `AudioDecoder.finish`."""
        frames = self._framed(self._flushed())
        return frames, tuple(framer.finish() for framer in self._framers)

    def _turned(self, samples: Audio, rate: int) -> Audio:
        """The first samples at another rate than those before."""
        self._rate, self._resampler = rate, None
        if rate == SAMPLE_RATE:
            return samples
        # With several channels it keeps a filter for each: the same samples as one resampler a track.
        self._resampler = soxr.ResampleStream(rate, SAMPLE_RATE, self._tracks, dtype="float32", quality="HQ")
        return self._resampled(samples, last=False)

    def _flushed(self) -> Audio:
        """What the resampler holds back."""
        nothing = np.zeros((0, self._tracks), np.float32)
        return nothing if self._resampler is None else self._resampled(nothing, last=True)

    def _resampled(self, samples: Audio, *, last: bool) -> Audio:
        """(n, tracks) to (m, tracks)."""
        assert self._resampler is not None
        # One track has to come, and comes back, without its second dimension.
        chunk = samples[:, 0] if samples.shape[1] == 1 else samples
        out: Audio = self._resampler.resample_chunk(np.ascontiguousarray(chunk), last=last)
        return out.reshape(-1, samples.shape[1])

    def _framed(self, samples: Audio) -> tuple[Audio, ...]:
        return tuple(
            framer.feed(np.ascontiguousarray(track))
            for framer, track in zip(self._framers, samples.T, strict=True)
        )


class AudioDecoder:
    """One client's audio. Raises `ProtocolError` on samples that are not audio; it is dead after that.

    `tracks` is 1, and the channels are mixed down, or the number of channels: channel i is track i. All
    tracks of an answer hold equally many samples.
    """

    def __init__(self, format: AudioFormat, tracks: int = 1) -> None:
        if tracks not in {1, format.channels}:
            raise ValueError(f"{tracks} tracks cannot be made of {format.channels} channels")
        self._encoding = format.encoding
        self._channels = format.channels
        self._stride = stride(format)
        self._rate = format.sample_rate
        self._tracks = tracks
        self._rest = b""
        self._frames = Frames(tracks)

    def feed(self, data: bytes) -> tuple[Audio, ...]:
        """All whole frames now complete: of each track n * FRAME samples, read-only."""
        if self._rest:
            data = self._rest + data
        odd = len(data) % self._stride
        self._rest = data[len(data) - odd :] if odd else b""
        samples = self._samples(np.frombuffer(data, np.uint8, len(data) - odd))
        return self._frames.feed(samples, self._rate)

    def finish(self) -> tuple[tuple[Audio, ...], tuple[Audio, ...]]:
        """Of each track the last whole frames and the tail of fewer than FRAME samples.

        Bytes of an incomplete last sample are dropped: they are no sample.
        """
        return self._frames.finish()

    def _samples(self, raw: npt.NDArray[np.uint8]) -> Audio:
        """Bytes of whole samples as (n, tracks)."""
        audio: Audio
        match self._encoding:
            case Encoding.PCM_S16LE:
                audio = np.multiply(raw.view("<i2"), np.float32(1 / 32768), dtype=np.float32)
            case Encoding.PCM_F32LE:
                audio = _sound(raw.view("<f4"))
            case Encoding.MULAW | Encoding.ALAW:
                audio = _TABLES[self._encoding][raw]
            case Encoding.CONTAINER:
                raise ValueError("containers are for ContainerDecoder")
        audio = audio.reshape(-1, self._channels)
        if self._tracks == self._channels:
            return audio
        mixed: Audio = audio.mean(axis=1, keepdims=True, dtype=np.float32)
        return mixed


def _sound(samples: npt.NDArray[np.float32]) -> Audio:
    """Float samples clipped to [-1, 1]; refused where they are no numbers or far out of range, for both
    mean that the bytes are not what `start` said."""
    audio: Audio = samples.astype(np.float32, copy=True)
    peak = float(np.abs(audio).max(initial=0.0))
    if not peak <= _LOUDEST:
        what = "NaN or infinite" if not np.isfinite(peak) else f"as large as {peak:.3g}"
        raise ProtocolError(
            "bad_audio",
            f"audio.encoding: the samples are {what}: send pcm_f32le between -1 and 1, or name the"
            " encoding they are in",
            field="audio.encoding",
        )
    return np.clip(audio, -1.0, 1.0, out=audio) if peak > 1.0 else audio
