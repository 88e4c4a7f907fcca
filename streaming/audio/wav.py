"""The header of a WAV stream, so that its samples can be read as they come: FFmpeg's own reader looks at
64 KiB of them first. Lengths are believed only where they can be true: who writes to a pipe does not know
them yet."""

from __future__ import annotations

import struct

from .tape import NotAudio, Source

_RAW = {
    (1, 8): "u8",
    (1, 16): "s16le",
    (1, 24): "s24le",
    (1, 32): "s32le",
    (3, 32): "f32le",
    (3, 64): "f64le",
    (6, 8): "alaw",
    (7, 8): "mulaw",
}
_EXTENSIBLE = 0xFFFE
_LONGEST_FMT = 4096
_NO_LENGTH = 0x7FFF_0000
"""From here on a length stands for none."""


class Part:
    """`before`, then at most `length` bytes of a source."""

    def __init__(self, source: Source, length: int, before: bytes = b"") -> None:
        self._source, self._left, self._before = source, length, before

    def read(self, size: int) -> bytes:
        if self._before:
            data, self._before = self._before[:size], self._before[size:]
            return data
        data = self._source.read(min(size, self._left)) if self._left else b""
        self._left -= len(data)
        return data


def samples_of(source: Source) -> tuple[Source, str, dict[str, str]]:
    """Read the header; the answer is what to open: the bytes, FFmpeg's name of their format, its options.
    Raises `NotAudio`."""
    header, fmt = _exactly(source, 12), b""
    while True:
        head = _exactly(source, 8)
        name, size = head[:4], int.from_bytes(head[4:], "little")
        if name == b"data":
            break
        if name == b"fmt ":
            if not 14 <= size <= _LONGEST_FMT:
                raise NotAudio(f"its WAV header has a format of {size} bytes")
            fmt = _exactly(source, size + size % 2)
            header += head + fmt
        else:
            _skip(source, size + size % 2)
    if len(fmt) < 16:
        raise NotAudio("its WAV header does not say what the samples are")
    tag, channels, rate, _, _, bits = struct.unpack("<HHIIHH", fmt[:16])
    if tag == _EXTENSIBLE and len(fmt) >= 26:
        tag = int.from_bytes(fmt[24:26], "little")
    length = size if 0 < size < _NO_LENGTH else 1 << 62
    raw = _RAW.get((tag, bits))
    if raw is None or not channels or not rate:
        return Part(source, length, header + head), "wav", {}
    return Part(source, length), raw, {"sample_rate": str(rate), "ch_layout": f"{channels}c"}


def _exactly(source: Source, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (more := source.read(size - len(data))):
            raise NotAudio("its WAV header breaks off")
        data += more
    return data


def _skip(source: Source, size: int) -> None:
    while size > 0:
        if not (data := source.read(min(size, 1 << 16))):
            raise NotAudio("its WAV header breaks off")
        size -= len(data)
