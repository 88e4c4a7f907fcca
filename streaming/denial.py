"""Refusals over HTTP, as the protocol of whoever asked writes them: status, reason, when to come back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response

from streaming.wire.errors import CloseCode, WireError

Denied = tuple[Any, Mapping[str, str]]
"""What goes with a status: the body (JSON; a string as it is), and more headers."""

Deny = Callable[[int, str], Denied]
"""How a protocol says that a request was refused with this status, for this reason (a sentence without its
full stop)."""


def plainly(status: int, message: str) -> Denied:
    """As text."""
    return f"{message}.\n", {}


def denial(deny: Deny, status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """The refusal."""
    body, more = deny(status, message)
    headers = {**(headers or {}), **more}
    if isinstance(body, str):
        return PlainTextResponse(body, status, headers)
    return JSONResponse(body, status, headers)


def refused(deny: Deny, error: WireError) -> Response:
    """Why no stream begins, told before there is one."""
    return denial(deny, status_of(error.close, error.code), error.message, later_of(error))


_STATUS = {
    CloseCode.TOO_BIG: 413,
    CloseCode.LIMIT: 429,
    CloseCode.RESTART: 503,
    CloseCode.OVERLOAD: 503,
    CloseCode.BAD_REQUEST: 400,
    CloseCode.UNAUTHORIZED: 401,
    CloseCode.GONE: 404,
    CloseCode.TIMEOUT: 408,
}

COME_BACK = frozenset({429, 503})
"""With these the same request may be taken later."""


def status_of(close: int, code: str = "") -> int:
    """What a stream is closed with, for a reason of this name, as a status: 500 where it is our fault."""
    if code == "session_too_long":
        return 413  # a limit, but the same again will not fit either
    return next((status for known, status in _STATUS.items() if known == close), 500)


def later(seconds: float) -> dict[str, str]:
    """The header that says when to come back."""
    return {"retry-after": str(max(1, math.ceil(seconds)))}


def later_of(error: WireError) -> dict[str, str]:
    """The same for an error: none where coming back is no use."""
    worth = error.retry_after_ms is not None and status_of(error.close, error.code) in COME_BACK
    return later((error.retry_after_ms or 0) / 1000) if worth else {}


class Refusal(Exception):
    """A request cannot be carried out. The message names the field and the remedy, in a sentence without its
    full stop."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.retry_after_s = retry_after_s


def of_wire(error: WireError) -> Refusal:
    """The refusal of a stream as that of a request."""
    status = status_of(error.close, error.code)
    retry = error.retry_after_ms
    return Refusal(
        status,
        error.message,
        code=error.code,
        param=error.field,
        retry_after_s=None if retry is None or status not in COME_BACK else retry / 1000,
    )


def later_than(refusal: Refusal) -> dict[str, str]:
    """The header of a refusal that is worth another try."""
    return {} if refusal.retry_after_s is None else later(refusal.retry_after_s)


def turned_away(deny: Deny, refusal: Refusal) -> Response:
    """A refusal before the request's body was read, which nobody will: its connection closes."""
    return denial(deny, refusal.status, refusal.message, {**later_than(refusal), "connection": "close"})
