"""Audio bytes of one client to mono float32 at 16 kHz, in whole frames.

State is kept across packets (bytes of a cut sample, the resampler's filter, samples of a cut frame), so
the same bytes give the same samples however they are packed. For n samples at rate r exactly
round(n * 16000 / r) come out by the end; before it the resampler holds back at most 0.12 s.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import soxr

from engine.contract import SAMPLE_RATE, Audio

from .core.framing import Framer
from .wire.errors import ProtocolError
from .wire.messages import AudioFormat, Encoding

_LOUDEST = 64.0
"""Float samples beyond this are no audio but another encoding; up to it they are clipped to [-1, 1]."""

_WIDTHS = {Encoding.PCM_S16LE: 2, Encoding.PCM_F32LE: 4, Encoding.MULAW: 1, Encoding.ALAW: 1}


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


class AudioDecoder:
    """One client's audio. Raises `ProtocolError` on samples that are not audio; it is dead after that."""

    def __init__(self, format: AudioFormat) -> None:
        self._encoding = format.encoding
        self._channels = format.channels
        self._stride = _WIDTHS[format.encoding] * format.channels
        self._rest = b""
        self._resampler = (
            None
            if format.sample_rate == SAMPLE_RATE
            else soxr.ResampleStream(format.sample_rate, SAMPLE_RATE, 1, dtype="float32", quality="HQ")
        )
        self._framer = Framer()

    def feed(self, data: bytes) -> Audio:
        """All whole frames now complete: n * FRAME samples, read-only."""
        if self._rest:
            data = self._rest + data
        odd = len(data) % self._stride
        self._rest = data[len(data) - odd :] if odd else b""
        audio = self._mono(np.frombuffer(data, np.uint8, len(data) - odd))
        if self._resampler is not None:
            audio = self._resampler.resample_chunk(audio)
        return self._framer.feed(audio)

    def finish(self) -> tuple[Audio, Audio]:
        """The last whole frames and the tail of fewer than FRAME samples.

        Bytes of an incomplete last sample are dropped: they are no sample.
        """
        frames = self._framer.feed(
            np.zeros(0, np.float32)
            if self._resampler is None
            else self._resampler.resample_chunk(np.zeros(0, np.float32), last=True)
        )
        return frames, self._framer.finish()

    def _mono(self, raw: npt.NDArray[np.uint8]) -> Audio:
        audio: Audio
        match self._encoding:
            case Encoding.PCM_S16LE:
                audio = np.multiply(raw.view("<i2"), np.float32(1 / 32768), dtype=np.float32)
            case Encoding.PCM_F32LE:
                audio = _sound(raw.view("<f4"))
            case Encoding.MULAW | Encoding.ALAW:
                audio = _TABLES[self._encoding][raw]
        if self._channels == 1:
            return audio
        mixed: Audio = audio.reshape(-1, self._channels).mean(axis=1, dtype=np.float32)
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
