"""MP4 as it comes, box by box. FFmpeg takes a box's length for the truth and skips, if need be to the end of
the meeting, what stands where bytes were lost; here what is no box is seen at once."""

from __future__ import annotations

from .tape import Stalled, Tape

_KNOWN = frozenset(
    b"ftyp styp moov moof mdat free skip sidx ssix prft emsg mfra meta uuid pdin wide udta".split()
)
_HEAD = 8


class Boxes:
    """Passes a recording on whose outermost boxes are those that one has; else `Stalled` is its fault."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._ready = b""  # looked at, not passed on yet
        self._left = 0

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

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := self._tape.read(size - len(data))):
            data += more
        return data
