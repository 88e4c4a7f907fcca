"""Audio of every encoding, at many rates, mixed and in tracks: cut anywhere it is the same audio."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

from engine.contract import FRAME, SAMPLE_RATE
from streaming.audio.samples import AudioDecoder, stride
from streaming.audio.splice import Splice
from streaming.core.framing import Framer
from streaming.wire.errors import ProtocolError
from streaming.wire.messages import AudioFormat, Encoding

from .runner import Target

RATES = (8_000, 11_025, 16_000, 22_050, 44_100, 47_999, 48_000)
_TONE = 0.3 * np.sin(np.arange(256) / 5)
SEEDS = {
    Encoding.PCM_S16LE: (_TONE * 32767).astype("<i2").tobytes(),
    Encoding.PCM_F32LE: _TONE.astype("<f4").tobytes(),
    Encoding.MULAW: bytes(range(256)),
    Encoding.ALAW: bytes(range(256)),
}


def cut(data: bytes, choices: Random) -> list[bytes]:
    """In a few pieces, some of them empty."""
    places = sorted(choices.randint(0, len(data)) for _ in range(choices.randint(0, 4)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def _samples(format: AudioFormat, tracks: int, pieces: list[bytes]) -> np.ndarray:
    decoder = AudioDecoder(format, tracks)
    fed = [decoder.feed(piece) for piece in pieces]
    frames, tails = decoder.finish()
    whole = [np.concatenate([part[track] for part in (*fed, frames)]) for track in range(tracks)]
    assert all(len(track) % FRAME == 0 for track in whole), "not whole frames"
    return np.stack([np.concatenate(pair) for pair in zip(whole, tails, strict=True)])


def _decoder(encoding: Encoding) -> Callable[[bytes, Random], object]:
    def run(case: bytes, choices: Random) -> object:
        channels = choices.choice((1, 1, 2, 3, 8))
        format = AudioFormat(encoding, choices.choice(RATES), channels)
        tracks = choices.choice((1, channels))
        whole = _samples(format, tracks, [case])
        count = len(case) // stride(format)
        exact = count * SAMPLE_RATE / format.sample_rate
        assert abs(whole.shape[1] - exact) <= 0.5, f"{whole.shape[1]} samples where {exact} are due"
        assert np.isfinite(whole).all()
        assert np.abs(whole).max(initial=0) < 8
        apart = _samples(format, tracks, cut(case, choices))
        assert np.array_equal(whole, apart), "other samples when cut"
        return whole

    return run


def _splice(case: bytes, choices: Random) -> object:
    """What comes twice over a second connection is dropped to the sample."""
    rate, width = choices.choice(RATES), choices.choice((1, 2, 4, 6, 32))
    splice, kept = Splice(width, rate, 0), b""
    whole = case[: len(case) // width * width]
    for piece in cut(whole[: choices.randint(0, len(whole))], choices):
        kept += splice.take(piece)
    splice.rejoin()
    # As clients/docs/protocol.md has it: from sample ceil(next_sample * rate / 16000) of the client's own.
    first = -(-splice.next_sample * rate // SAMPLE_RATE)
    for piece in cut(whole[first * width :], choices):
        kept += splice.take(piece)
    assert kept == whole, f"{len(kept)} of {len(whole)} bytes arrived"
    return kept


def _framer(case: bytes, choices: Random) -> object:
    samples = np.frombuffer(case[: len(case) // 4 * 4], "<f4")
    framer, parts, at = Framer(), [], 0
    while at < len(samples):
        size = choices.randint(0, 2 * FRAME)
        parts.append(framer.feed(samples[at : at + size]))
        at += size
    parts.append(framer.finish())
    assert np.concatenate(parts).tobytes() == samples.tobytes()
    return parts


TARGETS = (
    *(Target(str(e), [SEEDS[e], SEEDS[e] * 8], _decoder(e), (ProtocolError,), 0.1) for e in SEEDS),
    Target("splice", [bytes(range(200)) * 3], _splice, (), 0.5),
    Target("framing", [SEEDS[Encoding.PCM_F32LE] * 3], _framer, (), 0.5),
)
