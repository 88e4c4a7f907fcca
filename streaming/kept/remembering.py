"""The voices of a session as bytes, so that another process knows them again. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from engine.contract import SpeakerTraits, Vector
from streaming.core.voices import KnownVoice


class _Voice(msgspec.Struct, frozen=True, array_like=True):
    number: int
    total: bytes
    """Little-endian float32."""
    seconds: float
    heard_s: float


class _Voices(msgspec.Struct, frozen=True, array_like=True):
    model: str
    """The encoder: vectors of two do not compare."""
    voices: tuple[_Voice, ...]


_decoder = msgspec.msgpack.Decoder(_Voices)


def encode(voices: Iterable[KnownVoice], traits: SpeakerTraits) -> bytes:
    """For `decode`; some 4 bytes a dimension and voice."""
    return msgspec.msgpack.encode(
        _Voices(
            traits.model,
            tuple(_Voice(v.number, v.total.astype("<f4").tobytes(), v.seconds, v.heard_s) for v in voices),
        )
    )


def decode(data: bytes | None, traits: SpeakerTraits) -> list[KnownVoice]:
    """The voices; none if another encoder heard them, or the disk has damaged them: then nobody is known
    again, and all that was said keeps its numbers."""
    try:
        found = _decoder.decode(data) if data else None
        if found is None or found.model != traits.model:
            return []
        return [KnownVoice(v.number, _vector(v.total, traits), v.seconds, v.heard_s) for v in found.voices]
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
        return []


def _vector(data: bytes, traits: SpeakerTraits) -> Vector:
    """Raises ValueError for what is no vector of this encoder."""
    vector: Vector = np.frombuffer(data, "<f4").astype(np.float32)
    if len(vector) != traits.dimension or not np.isfinite(vector).all():
        raise ValueError("no vector of this encoder")
    return vector
