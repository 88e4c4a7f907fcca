"""MP4 box by box, before FFmpeg, which believes what boxes say of themselves.

It takes a box's length for the truth and skips, if need be to the end of the meeting, what stands where bytes
were lost; as it comes, what is no box is seen at once. And it makes room for as many samples as a table
counts: a few hundred bytes can count a hundred million.
"""

from __future__ import annotations

import re
from typing import BinaryIO

from .tape import HEADER, Stalled, Tape, refused
from .wire.errors import ProtocolError

_KNOWN = frozenset(
    b"ftyp styp moov moof mdat free skip sidx ssix prft emsg mfra meta uuid pdin wide udta".split()
)
_HEAD = 8
_PLAIN = frozenset(b"mdat free skip".split())
"""Boxes in which nothing is counted."""

FREE_SAMPLES = 50_000
BYTES_A_SAMPLE = 3
"""More samples than `FREE_SAMPLES` and one for each so many bytes are no index but an attack: the smallest,
silence in Opus, take three bytes."""
INDEX = 32 << 20
"""Bytes of a file's longest box but those that hold its samples."""
_RUN = 256
"""Bare PCM is indexed by runs, of 1024 samples where they are long enough."""

# Wherever they stand, inside of one another too: a name may hide a table behind it.
_COUNTED = re.compile(rb"(?:stsz|stz2)(?=(?P<table>.{12}))|trun(?=(?P<run>.{8}))", re.DOTALL)
_TIMES = re.compile(rb"stts(?=.{4}(?P<times>.{12}))", re.DOTALL)
_BARE = (1).to_bytes(4, "big") * 2
"""One entry, and its length: every sample takes one tick."""


def samples_said(box: bytes) -> int:
    """As how many samples FFmpeg indexes what the tables in a box count, however they are nested."""
    times = [found["times"] for found in _TIMES.finditer(box)]
    bare = bool(times) and all(time[:4] + time[8:] == _BARE for time in times)
    said = 0
    for found in _COUNTED.finditer(box):
        if (table := found["table"]) is None:
            said += int.from_bytes(found["run"][4:], "big")
        else:
            each, count = int.from_bytes(table[4:8], "big"), int.from_bytes(table[8:], "big")
            said += count // _RUN if bare and each else count
    return said


def check_samples(said: int, size: int) -> None:
    """Raise `ProtocolError` for an index of more samples than `size` bytes hold."""
    if said > FREE_SAMPLES + size // BYTES_A_SAMPLE:
        raise refused(
            "encoding",
            f"its index counts {said} samples in {size} bytes, more than fit: send what one recorded",
        )


def check_file(file: BinaryIO, size: int) -> None:
    """The same of a whole file of `size` bytes, which is left at its beginning."""
    said = at = 0
    while at < size:
        file.seek(at)
        head = file.read(_HEAD + 8)
        length, behind = int.from_bytes(head[:4], "big"), _HEAD
        if length == 1:
            length, behind = int.from_bytes(head[8:16], "big"), _HEAD + 8
        if length < behind:  # 0: to the end; else broken
            length = size - at
        if head[4:8] not in _PLAIN:
            if length > INDEX:
                raise refused(
                    "encoding", f"its index takes {length} bytes; {INDEX} are the most: send less at once"
                )
            file.seek(at)
            said += samples_said(file.read(length))
            check_samples(said, size)
        at += length
    file.seek(0)


class Boxes:
    """Passes a recording on whose outermost boxes are those that one has; else `Stalled` is its fault."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._ready = b""  # looked at, not passed on yet
        self._left = 0
        self._said = 0

    def read(self, size: int) -> bytes:
        if not self._ready and not self._left:
            self._open()
        if self._ready:
            data, self._ready = self._ready[:size], self._ready[size:]
            return data
        data = self._tape.read(min(size, self._left)) if self._left else b""
        self._left -= len(data)
        return data

    def _open(self) -> None:
        """Read the next box's head."""
        head = self._exactly(_HEAD)
        length, kind = int.from_bytes(head[:4], "big"), head[4:]
        if len(head) == _HEAD and kind not in _KNOWN:
            self._tape.fault = Stalled("bytes are missing: no box begins where one should")
            return
        if length == 1:
            more = self._exactly(8)
            head, length = head + more, int.from_bytes(more, "big")
        elif length == 0:
            length = 1 << 62  # to the end
        self._ready = head
        self._left = max(0, length - len(head))
        if kind not in _PLAIN:
            self._look()

    def _look(self) -> None:
        """See what the box counts before any of it is passed on."""
        # A longer one is no recording: see `HEADER`.
        body = self._exactly(min(self._left, HEADER))
        self._left -= len(body)
        self._said += samples_said(body)
        self._ready += body
        try:
            check_samples(self._said, self._tape.taken)
        except ProtocolError as error:
            self._tape.fault, self._ready, self._left = error, b"", 0

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size and (more := self._tape.read(size - len(data))):
            data += more
        return bytes(data)
