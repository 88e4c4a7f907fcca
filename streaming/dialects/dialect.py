"""What a translator is: a client's frames to messages of the native protocol, and back. Pure.

A dialect holds no socket, no clock and no session: it is told what came, and says what shall be done. What
is common to all clients (keys, room, back-pressure, slow readers, drains, the journal) it never sees: the
native protocol lies behind it (`bridge`). Its clients cannot come back to a session: none of their protocols
has a word for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from streaming.denial import Deny, plainly
from streaming.wire.errors import CloseCode
from streaming.wire.messages import ClientMessage, Error, ServerMessage

from .query import Query

Frame = str | bytes
"""A text or a binary frame."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """Names that mean nothing here, in a query or a message: counted, and told to the debug log."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bye:
    """The end of the connection: the last frames, then the close."""

    code: int = CloseCode.NORMAL
    reason: str = ""
    frames: tuple[Frame, ...] = ()


Heard = ClientMessage | Frame | Ignored | Bye
"""What follows from a frame: a message for the session, a frame that goes straight back, or the end."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """What a client said before its first frame, but for secrets."""

    id: str
    """Of the session that is to come."""
    created: str = ""
    """When this was: ISO 8601, UTC."""
    query: Query = field(default_factory=Query)
    subprotocols: tuple[str, ...] = ()
    note: str = ""
    """What was said of the session when the client's token was made (`auth.Caller.note`)."""
    redacts: bool = False
    """Whether this server strikes words out (`privacy.redact`)."""


class Dialect(Protocol):
    """One client's translator. All of it returns at once and remembers what it has to."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Of the answer to the handshake."""
        ...

    def greet(self) -> Iterable[Heard]:
        """The socket is open; comes first, once."""
        ...

    def hear(self, frame: Frame) -> Iterable[Heard]:
        """One frame of the client. The first message for the session is `Start`. Raises `WireError` where the
        stream has to end; what was yielded before still counts."""
        ...

    def tick(self, quiet_s: float) -> Iterable[Heard]:
        """Nothing has come for so long although it would have been taken; comes every second of it."""
        ...

    def gone(self) -> Iterable[Heard]:
        """The client has left without a word; what of it was still held back."""
        ...

    def say(self, message: ServerMessage) -> Iterable[Frame]:
        """One message of the session: never an `Error`, which `close` is given."""
        ...

    def close(self, code: int, error: Error | None) -> Bye:
        """The session has said everything; `code` and `error` are what a native client would get."""
        ...


class Translator:
    """What dialects have in common: a dialect overrides what its protocol knows."""

    headers: Mapping[str, str] = {}

    def greet(self) -> Iterable[Heard]:
        """Nothing."""
        return ()

    def tick(self, quiet_s: float) -> Iterable[Heard]:
        """Nothing."""
        return ()

    def gone(self) -> Iterable[Heard]:
        """Nothing."""
        return ()

    def close(self, code: int, error: Error | None) -> Bye:
        """With our own code, and the error's name as the reason."""
        return Bye(code, "" if error is None else error.code)


@dataclass(frozen=True, slots=True)
class Way:
    """One socket at which a dialect is spoken."""

    name: str
    """For metrics and logs."""
    path: str
    open: Callable[[Handshake], Dialect]
    """A translator for a client; raises `WireError` for a handshake that cannot be taken: it is told with 400
    before the upgrade."""
    subprotocols: frozenset[str] = frozenset()
    """Those that may be answered, of what a client offers."""
    key_headers: tuple[str, ...] = ()
    """Where else a key may stand but in `Authorization` and the subprotocols: the value of a header, in lower
    case,"""
    key_queries: tuple[str, ...] = ()
    """or of a name in the query."""
    key_later: bool = False
    """Whether a client may bring its key in a message: the dialect puts it into `Start.token`."""
    deny: Deny = plainly
    """How a refusal before the upgrade reads."""
