"""A client's messages as what a demuxer reads: recordings, one after another. Pure but for `pull`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from streaming.wire.errors import ProtocolError

KNOWN = "WebM, Ogg, MP4 in fragments, FLAC, MP3, AAC, WAV, AIFF, CAF, AU or AMR"

ENOUGH = 12
"""Bytes that tell how a recording is written."""

MP3_ENOUGH = 2048

HEADER = 4 << 20
"""Bytes, pictures in tags too, before the first sample, or between one and the next."""

HEAD = 256 << 10
"""The longest header that is kept for taking a recording up again."""

STALL = 64 << 10
STALL_S = 5.0
"""More bytes without a sample, and more than so many seconds took on average, are a demuxer that was led
astray by missing bytes, waiting for the end of something that has none."""

_EBML, _CLUSTER = b"\x1aE\xdf\xa3", b"\x1fC\xb6\x75"
_RESUMED = {"matroska": (_CLUSTER, 0), "mp4": (b"moof", 4)}
"""What begins a part that can be decoded with the recording's header alone, and how far behind its first byte
that stands."""
_HEADERS = ((_EBML, 0), (b"OggS\0\x02", 0), (b"fLaC", 0), (b"RIFF", 0), (b"ftyp", 4))
_SELF = frozenset({"mp3", "aac"})
"""Written so that reading can begin anywhere."""
_BEGINNINGS = {
    b"\x1aE\xdf\xa3": "matroska",
    b"fLaC": "flac",
    b"caff": "caf",
    b".snd": "au",
    b"#!AMR": "amr",
    b"ID3": "mp3",
}


class Source(Protocol):
    """What FFmpeg reads."""

    def read(self, size: int) -> bytes:
        """Some bytes, `size` at most; none at the end."""
        ...


class Stalled(Exception):
    """Bytes come, but no samples, or not where they should."""


def refused(field: str, why: str) -> ProtocolError:
    """The audio cannot be taken, because of `field`."""
    return ProtocolError("bad_audio", f"audio.{field}: {why}", field=f"audio.{field}")


class NotAudio(ProtocolError):
    """The bytes are no recording."""

    def __init__(self, why: str) -> None:
        super().__init__(
            "bad_audio",
            f"audio.encoding: {why}: send a recording from its first byte on, as {KNOWN}, or name the"
            " encoding of bare samples",
            field="audio.encoding",
        )


def sniff(data: bytes) -> str | None:
    """FFmpeg's name for what begins with these bytes, `ENOUGH` of them; None for what is not taken."""
    for beginning, name in _BEGINNINGS.items():
        if data.startswith(beginning):
            return name
    if data[:4] in (b"RIFF", b"RF64") and data[8:12] == b"WAVE":
        return "wav"
    if data[:4] == b"FORM" and data[8:12] in (b"AIFF", b"AIFC"):
        return "aiff"
    if data[:4] == b"OggS" and data[5:6] and data[5] & 2:
        return "ogg"
    if data[4:8] in (b"ftyp", b"styp"):
        return "mp4"
    if data[:1] == b"\xff" and data[1:2] and data[1] & 0xE0 == 0xE0:
        layer = data[1] & 6
        # All-ones is no version, layer or rate.
        if layer == 0:
            return "aac" if data[1] & 0xF0 == 0xF0 else None
        return "mp3" if data[1] & 0x18 != 8 and data[2:3] and data[2] & 0xF0 != 0xF0 else None
    return None


@dataclass(frozen=True, slots=True)
class Beginning:
    """What comes next: a recording, or, not `fresh`, more of one that broke."""

    format: str
    fresh: bool


class Tape:
    """`pull` gives the client's next message and waits for it; none at the end."""

    def __init__(self, pull: Callable[[], bytes]) -> None:
        self._pull = pull
        self._ahead = b""
        self._at = 0  # read of `_ahead`
        self._next = b""  # another recording's first message
        self._over = False
        self._format: str | None = None
        self._broken = False
        self._heard = False  # whether this recording gave a sample
        self._quiet = 0  # bytes since the last sample
        self._pace = 0.0  # bytes a second of audio
        self._head = bytearray()
        self._head_known = False
        self.ended = False
        """Whether this recording was read to its end."""
        self.fault: Exception | None = None
        """Why there is no more to read of this recording, where that is not its end: raised in `read` it
        would have to find its way through FFmpeg."""
        self.taken = 0
        """Bytes of the client so far."""

    def read(self, size: int) -> bytes:
        """More of this recording, `size` bytes at most; none at its end, or once there is a `fault`."""
        self._check_quiet()
        if self.fault is not None:
            return b""
        if self._at >= len(self._ahead) and not self._next:
            message = self._take()
            if self._heard and _is_header(message):
                self._next = message
            else:
                self._ahead, self._at = message, 0
        data = self._ahead[self._at : self._at + size]
        self._at += len(data)
        self._quiet += len(data)
        self.ended = not data
        self._keep_head(data)
        return data

    def begin(self) -> Beginning | None:
        """The next recording; None at the end of the stream. After the first, what belongs to none is
        skipped. Raises `NotAudio`."""
        ahead, self._at = self._ahead[self._at :], len(self._ahead)
        if self._next:
            ahead, self._next = self._next, b""
        while True:
            while len(ahead) < _enough(ahead) and (more := self._take()):
                ahead += more
            if (found := self._find(ahead)) is not None:
                return found
            if ahead and self._format is None:
                raise NotAudio("what came begins like no recording that is known")
            if self._over:
                return None
            self._quiet += max(0, len(ahead) - ENOUGH)
            if self._quiet > HEADER:
                raise NotAudio(f"{self._quiet} bytes came without a sample of audio")
            ahead = ahead[-ENOUGH:] + self._take()

    def heard(self, seconds: float) -> None:
        """A frame was decoded: `seconds` in all."""
        self._heard = True
        self._quiet = 0
        self._pace = self.taken / seconds if seconds else 0.0

    def broke(self) -> None:
        """The demuxer gave up."""
        self._broken, self.fault = True, None

    def _take(self) -> bytes:
        message = b"" if self._over else self._pull()
        self._over = self._over or not message
        self.taken += len(message)
        return message

    def _find(self, ahead: bytes) -> Beginning | None:
        """Where a recording begins in `ahead`, or the broken one can be taken up again."""
        if self._format is None:
            return None if (format := sniff(ahead)) is None else self._start(format, ahead)
        if self._broken and self._format in _SELF:
            at = next((at for at in _all(ahead, b"\xff", 0) if _syncs(ahead[at:], self._format)), None)
            return None if at is None else self._start(self._format, ahead[at:], fresh=False)
        places = [(at - offset, True) for magic, offset in _HEADERS for at in _all(ahead, magic, offset)]
        if self._broken and self._head_known and self._head:
            magic, offset = _RESUMED[self._format]
            places += [(at - offset, False) for at in _all(ahead, magic, offset)]
        for at, fresh in sorted(places):
            if not fresh:
                return self._start(self._format, bytes(self._head) + ahead[at:], fresh=False)
            if _is_header(ahead[at : at + ENOUGH]) and (format := sniff(ahead[at : at + ENOUGH])):
                return self._start(format, ahead[at:])
        return None

    def _start(self, format: str, ahead: bytes, *, fresh: bool = True) -> Beginning:
        self._ahead, self._at = ahead, 0
        self._format, self._broken, self.ended = format, False, False
        self._quiet = self._quiet if fresh else 0
        if fresh:
            self._heard = False
            self._head, self._head_known = bytearray(), format not in _RESUMED
        return Beginning(format, fresh)

    def _keep_head(self, data: bytes) -> None:
        """Keep what comes before the first part of the recording."""
        if self._head_known or self._format is None:
            return
        magic, offset = _RESUMED[self._format]
        self._head += data
        at = self._head.find(magic, max(0, len(self._head) - len(data) - len(magic)))
        if at >= 0:
            del self._head[max(0, at - offset) :]
        elif len(self._head) > HEAD:
            self._head.clear()
        else:
            return
        self._head_known = True

    def _check_quiet(self) -> None:
        if self._heard and self._quiet > max(STALL, STALL_S * self._pace):
            self.fault = Stalled("bytes came, but no samples")
        elif self._quiet > HEADER:
            self.fault = NotAudio(f"{self._quiet} bytes came without a sample of audio")


def _syncs(data: bytes, format: str) -> bool:
    """Whether a frame seems to begin here; of AAC, whose frames say their length, with another behind it."""
    if sniff(data[:ENOUGH]) != format:
        return False
    length = (data[3] & 3) << 11 | data[4] << 3 | data[5] >> 5 if len(data) > 5 else 0
    behind = data[length : length + 2]
    return format != "aac" or len(behind) < 2 or (behind[0] == 0xFF and behind[1] & 0xF6 == 0xF0)


def _enough(ahead: bytes) -> int:
    """Bytes to have before a recording is opened; of MP3 its reader wants some frames, or it skips one."""
    return MP3_ENOUGH if sniff(ahead) == "mp3" else ENOUGH


def _is_header(data: bytes) -> bool:
    """Whether a recording begins here, told from what else a packet may begin with."""
    return (data[:3] != b"ID3" and data[4:8] != b"styp" and data[:1] != b"\xff") and sniff(data) is not None


def _all(data: bytes, magic: bytes, offset: int) -> Iterator[int]:
    """Where `magic` stands, `offset` bytes or more from the beginning."""
    at = data.find(magic, offset)
    while at >= 0:
        yield at
        at = data.find(magic, at + 1)
