"""Refusals over HTTP, as the protocol of whoever asked writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response

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
