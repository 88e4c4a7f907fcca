"""What a recording may cost FFmpeg, which makes room for what a file counts and not for what it holds.

A table of some bytes can count a hundred million samples, names or pictures, in every format it reads."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import BinaryIO

from .tape import NotAudio

BLOCK = 64 << 20
"""Bytes of one block of FFmpeg's memory: an index of 2.7 million samples, 15 hours of AAC."""

STREAMS = 64
"""In one recording: pictures and fonts are streams too."""

UNHEARD = 16 << 20
"""Bytes that may be read of a file without a sample of audio: its index, its pictures. Small entries grow to
some 25 times their length."""


@cache
def bound_blocks() -> None:
    """Have FFmpeg refuse itself larger blocks than `BLOCK`, in all of this process. A setting of the library
    that PyAV does not know: where it cannot be reached, the other bounds hold alone."""
    import av._core

    try:
        limit = ctypes.CDLL(av._core.__file__).av_max_alloc
    except (AttributeError, OSError):
        return
    limit.argtypes, limit.restype = [ctypes.c_size_t], None
    limit(BLOCK)


class Watched:
    """A file that is read for the sake of its audio: `fault` once `UNHEARD` bytes were read without any."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._unheard = 0
        self.fault: NotAudio | None = None

    def heard(self) -> None:
        """A sample came."""
        self._unheard = 0

    def read(self, size: int) -> bytes:
        if self._unheard > UNHEARD:
            self.fault = NotAudio(f"{self._unheard} bytes of it held no sample of audio")
            return b""
        data = self._file.read(size)
        self._unheard += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()
