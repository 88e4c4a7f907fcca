"""What may be wrong with a client's stream, as one value the client can act on.

    WireError            carries code, message, field, close code
    └── ProtocolError    the client broke the protocol; sending the same again fails again

The server's own reasons to end a stream derive from `WireError` in `streaming.errors`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self

from msgspec import UNSET

from .messages import Error


class CloseCode(IntEnum):
    """Close codes of the socket. 1012 and 1013 invite the client to come back, 44xx and 1009 do not."""

    NORMAL = 1000
    """The stream ended as asked; its receipt was sent."""
    LIMIT = 1008
    """A limit of this endpoint was reached; a new session is welcome."""
    TOO_BIG = 1009
    """One message was larger than `ready.limits.max_packet_bytes`."""
    FAULT = 1011
    """The server failed."""
    RESTART = 1012
    """The server restarts: connect again at once, to another one if there is one."""
    OVERLOAD = 1013
    """The server is full: connect again after `retry_after_ms`."""
    BAD_REQUEST = 4400
    """The client broke the protocol: it must change before it tries again."""
    UNAUTHORIZED = 4401
    """The key or token is missing, unknown, used, or not for this."""
    GONE = 4404
    """No such session goes on here: start a new one."""
    TIMEOUT = 4408
    """The client sent or read nothing for too long."""
    REPLACED = 4409
    """The session goes on over a newer connection."""


class WireError(Exception):
    """A stream ends early. `code` is a short stable word, `field` a dotted path into the client's
    message, `retry_after_ms` when a retry is worth it."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        close: CloseCode,
        field: str | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.close = close
        self.field = field
        self.retry_after_ms = retry_after_ms

    def bare(self) -> Self:
        """This error, kept without where it came from: a frame holds all that was at work there."""
        self.__traceback__ = self.__context__ = None
        return self


class ProtocolError(WireError):
    """The client's message cannot be accepted; the message names the field and the remedy."""

    def __init__(
        self, code: str, message: str, *, field: str | None = None, close: CloseCode = CloseCode.BAD_REQUEST
    ) -> None:
        super().__init__(code, message, close=close, field=field)


def told(error: WireError, seq: int) -> Error:
    """The error as the client gets it."""
    return Error(
        seq,
        error.code,
        error.message,
        UNSET if error.field is None else error.field,
        UNSET if error.retry_after_ms is None else error.retry_after_ms,
    )


def shown(text: str, most: int = 80) -> str:
    """What a client wrote, as it may stand in a log line or an answer: one line, `most` characters of it."""
    return repr(text if len(text) <= most else f"{text[:most]}…")[1:-1]
