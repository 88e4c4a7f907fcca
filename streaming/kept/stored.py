"""What the journal keeps, as values and as bytes. Pure.

A segment is packed (some 30 bytes a word), everything else is the wire's JSON. `partial` is not kept: it may
change freely, so nobody can miss it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from streaming.wire.messages import (
    Activity,
    Ended,
    Error,
    Flushed,
    Gap,
    Named,
    Participant,
    Segment,
    Speaker,
    Start,
)

from .log import State
from .packed import pack, unpack
from .turns import Turns

_FINAL = b"F"
_OPEN = b"O"
_Other = Speaker | Named | Participant | Turns | Gap | Activity | Flushed | Ended | Error

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[_Other] = msgspec.json.Decoder(_Other)


def encode(state: State) -> bytes:
    """The state without its number."""
    if isinstance(state, Segment):
        return (_FINAL if state.final else _OPEN) + pack(state)
    return _encoder.encode(state)


def decode(data: bytes, seq: int) -> State:
    """The state with its number; raises `msgspec.DecodeError` for what `encode` did not write."""
    if data[:1] in (_FINAL, _OPEN):
        return msgspec.structs.replace(unpack(data[1:]), seq=seq, final=data[:1] == _FINAL)
    return msgspec.structs.replace(_decoder.decode(data), seq=seq)


class Damaged(Exception):
    """What the disk gave back is not what was written; says what."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a session is. Samples."""

    settled: tuple[int, ...] = ()
    """Of each track the sample before which nothing is decoded again."""
    received: int = 0


@dataclass(frozen=True, slots=True)
class Opened:
    """A session as it began. `created` is in milliseconds since 1970, as all times here."""

    created: int
    token: bytes
    """Digest of the token with which its client may come back."""
    read: bytes
    """Digest of the token with which readers may read."""
    start: Start


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message that is owed to a webhook."""

    id: str
    session: str
    body: bytes
    created: int
    tries: int = 0
    due: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    """One line of the list of sessions."""

    id: str
    created: int
    ended: int | None
    received: int
    label: str
    elsewhere: bool = False
    """Whether another living process has it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One session read back."""

    id: str
    opened: Opened
    ended: int | None
    progress: Progress
    states: tuple[State, ...]
    """In order of `seq`."""
    voices: bytes | None = None
    key: str = ""
    """Name of the API key that it counts against."""


Row = tuple[int, int | None, bytes, bytes, bytes, bytes, bytes | None, str]
"""As `sessions` has it: created, ended, token, read, start, progress, voices, key."""


def read_back(session: str, row: Row, rows: Sequence[tuple[bytes, int]]) -> Stored:
    """One session from its row and those of its events, (data, seq) in order of `seq`; raises `Damaged`."""
    created, ended, token, read, start, progress, voices, key = row
    try:
        opened = Opened(created, token, read, msgspec.json.decode(start, type=Start))
        states = tuple(decode(data, seq) for data, seq in rows)
        far = msgspec.json.decode(progress, type=Progress)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(str(error)) from None
    if far.settled and len(far.settled) < len(opened.start.tracks):
        raise Damaged(f"{len(opened.start.tracks)} tracks, {len(far.settled)} of them settled")
    return Stored(session, opened, ended, far, states, voices, key)


def received_of(progress: bytes) -> int:
    """Samples that a session received; 0 where the disk has damaged that."""
    try:
        return msgspec.json.decode(progress, type=Progress).received
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0


def label_of(start: bytes) -> str:
    """What a session's client calls it; empty where the disk has damaged that."""
    try:
        return msgspec.json.decode(start, type=Start).label
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


@dataclass(slots=True)
class Batch:
    """News not written yet, the newest of each kind; all of it is written or nothing."""

    opened: dict[str, Opened] = field(default_factory=dict)
    states: dict[tuple[str, str], tuple[int, State]] = field(default_factory=dict)
    progress: dict[str, Progress] = field(default_factory=dict)
    voices: dict[str, bytes] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    left: dict[str, bool] = field(default_factory=dict)
    """Sessions that this process has no more, after all else: any other may go on with them."""
    usage: dict[tuple[int, str], int] = field(default_factory=dict)
    """By day (since 1970) and name of a key: samples of audio."""

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)

    def __len__(self) -> int:
        return len(self.states) + len(self.opened) + len(self.deliveries)

    def sessions(self) -> list[str]:
        """Of which there is news."""
        ids = [*self.opened, *(id for id, _ in self.states), *self.progress, *self.voices, *self.ended]
        return [
            *dict.fromkeys([*ids, *self.keys, *self.left, *(d.session for d in self.deliveries.values())])
        ]

    def add(self, newer: Batch) -> None:
        """Take in what came later."""
        for name in self.__slots__:
            getattr(self, name).update(getattr(newer, name))

    def forget(self, session: str) -> None:
        """Leave out all that is about one session."""
        for name in ("opened", "progress", "voices", "ended", "keys", "left"):
            getattr(self, name).pop(session, None)
        self.states = {key: value for key, value in self.states.items() if key[0] != session}
        self.deliveries = {id: d for id, d in self.deliveries.items() if d.session != session}
