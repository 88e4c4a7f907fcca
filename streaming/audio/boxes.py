"""MP4 box by box, before FFmpeg, which believes what boxes say of themselves.

It takes a box's length for the truth and skips, if need be to the end of the meeting, what stands where bytes
were lost; as it comes, what is no box is seen at once. And it makes room for as many samples as a table
counts: a few hundred bytes can count a hundred million.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from streaming.wire.errors import ProtocolError

from .bounds import BLOCK
from .tape import HEADER, Stalled, Tape, refused

_KNOWN = frozenset(
    b"ftyp styp moov moof mdat free skip sidx ssix prft emsg mfra meta uuid pdin wide udta".split()
)
_HEAD = 8
_PLAIN = frozenset(b"mdat free skip".split())
"""Boxes in which nothing is counted,"""
_BEGINS = frozenset(b"mvhd cmov".split())
"""unless `free` begins like this: FFmpeg takes it for a `moov` where it finds no other."""

FREE_SAMPLES = 50_000
BYTES_A_SAMPLE = 3
"""More samples than `FREE_SAMPLES` and one for each so many bytes are no index but an attack: the smallest,
silence in Opus, take three bytes."""
MOST_SAMPLES = BLOCK // 25
"""However large the file: FFmpeg's index of them is one block, of 24 bytes a sample."""
INDEX = 16 << 20
"""Bytes of a file's longest box but those that hold its samples."""
_RUN = 256
"""Bare PCM is indexed by runs, of 1024 samples where they are long enough."""
_PART = 3
"""What a fragment costs for each track, in samples: FFmpeg notes every one of them for every other."""


class Index:
    """What FFmpeg would make room for, box by box. Names are looked for wherever they may stand, inside of
    one another too, and what is said behind them counts though their box ends before: it reads on."""

    def __init__(self) -> None:
        self._samples = self._tracks = self._parts = 0

    def add(self, box: bytes, size: int) -> None:
        """See one more box of a recording of `size` bytes, its head included. Raise `ProtocolError` for
        one that does not tell what it holds, or for more than `size` bytes can hold."""
        if any(box[at + 4 : at + 8] == b"dcom" for at in _behind(box, b"cmov")):
            raise refused("encoding", "its index is compressed: send one that is not")
        edits = sum(_number(box, at + 4) for at in _behind(box, b"elst"))
        # Each edit has the samples it shows indexed once more.
        self._samples += _samples(box) * max(1, edits)
        self._tracks += sum(1 for _ in _behind(box, b"trak"))
        self._parts += _parts(box)
        said = self._samples + _PART * self._parts * self._tracks
        if said > min(FREE_SAMPLES + size // BYTES_A_SAMPLE, MOST_SAMPLES):
            raise refused(
                "encoding",
                f"its index counts {said} samples in {size} bytes, more than fit: send what one recorded",
            )


def _samples(box: bytes) -> int:
    """As how many samples FFmpeg indexes what the tables in a box count."""
    times = [(_number(box, at + 4), _number(box, at + 12)) for at in _behind(box, b"stts")]
    # One entry, and its length: every sample takes one tick.
    bare = bool(times) and all(time == (1, 1) for time in times)
    said = sum(_number(box, at + 4) for at in _behind(box, b"trun"))
    for name in (b"stsz", b"stz2"):
        for at in _behind(box, name):
            each, count = _number(box, at + 4), _number(box, at + 8)
            said += count // _RUN if bare and each else count
    return said


def _parts(box: bytes) -> int:
    """Fragments there are, or that a list names."""
    lists = ((at, 30 if _number(box, at, 1) else 22) for at in _behind(box, b"sidx"))
    return sum(1 for _ in _behind(box, b"moof")) + sum(_number(box, at + count, 2) for at, count in lists)


def _behind(box: bytes, name: bytes) -> Iterator[int]:
    """Where what stands behind a name begins."""
    at = box.find(name)
    while at >= 0:
        yield at + len(name)
        at = box.find(name, at + 1)


def _number(box: bytes, at: int, size: int = 4) -> int:
    if at + size > len(box):
        raise refused("encoding", "a table of its index breaks off: send what one recorded")
    return int.from_bytes(box[at : at + size], "big")


def _is_plain(kind: bytes, begins: bytes) -> bool:
    """Whether nothing is counted in a box; `begins` is what it holds from its fifth byte on."""
    return kind in _PLAIN and not (kind == b"free" and begins in _BEGINS)


def check_file(file: BinaryIO, size: int) -> None:
    """Raise `ProtocolError` where FFmpeg would make room for more than a whole file of `size` bytes holds. It
    is left at its beginning."""
    index, at = Index(), 0
    while at < size:
        file.seek(at)
        head = file.read(_HEAD + 16)
        length, behind = int.from_bytes(head[:4], "big"), _HEAD
        if length == 1:
            length, behind = int.from_bytes(head[8:16], "big"), _HEAD + 8
        if length < behind:  # 0: to the end; else broken
            length = size - at
        if not _is_plain(head[4:8], head[behind + 4 : behind + 8]):
            if length > INDEX:
                raise refused(
                    "encoding", f"its index takes {length} bytes; {INDEX} are the most: send less at once"
                )
            file.seek(at)
            index.add(file.read(length), size)
        at += length
    file.seek(0)


class Boxes:
    """Passes a recording on whose outermost boxes are those that one has; else `Stalled` is its fault."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._ready = b""  # looked at, not passed on yet
        self._left = 0
        self._index = Index()

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
        self._ready += body
        try:
            self._index.add(self._ready, self._tape.taken)
        except ProtocolError as error:
            self._tape.fault, self._ready, self._left = error, b"", 0

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size and (more := self._tape.read(size - len(data))):
            data += more
        return bytes(data)
