"""What people may be called, and the body of a request that says so."""

from __future__ import annotations

import asyncio
import unicodedata

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request

from streaming.denial import Refusal
from streaming.wire.errors import shown
from streaming.wire.names import shows

MOST_CHARACTERS = 64
MOST_BYTES = 4096
"""A longer body names nobody."""

_BODY = '{"name": "..."}'


class Naming(Struct, frozen=True, forbid_unknown_fields=True):
    name: str


def fit(name: str) -> str:
    """The name as it is kept: composed characters, no outer space. Raises ValueError with the remedy."""
    kept = unicodedata.normalize("NFC", name).strip()
    if not kept:
        raise ValueError("is empty: use 1 to 64 characters")
    if len(kept) > MOST_CHARACTERS:
        raise ValueError(f"has {len(kept)} characters: use 1 to {MOST_CHARACTERS}")
    if not shows(kept):
        raise ValueError(f"{shown(kept)} holds characters that cannot be shown: use one line of plain text")
    return kept


async def naming(request: Request, patience_s: float) -> str:
    """The name in the body; raises `Refusal`, where it is not whole within `patience_s` too."""
    return _name(await body_of(request, patience_s, _BODY))


async def body_of(request: Request, patience_s: float, wanted: str) -> bytes:
    """The small body of a request; raises `Refusal`. `wanted` shows how it should look."""
    body = bytearray()
    try:
        async with asyncio.timeout(patience_s):
            async for piece in request.stream():
                body += piece
                if len(body) > MOST_BYTES:
                    raise Refusal(413, f"body: is over {MOST_BYTES} bytes: send {wanted} alone")
    except TimeoutError:
        raise Refusal(408, f"body: was not whole within {patience_s:g} s: send it at once") from None
    except ClientDisconnect:
        raise Refusal(400, f"body: broke off: send {wanted} whole") from None
    return bytes(body)


def _name(body: bytes) -> str:
    try:
        found = msgspec.json.decode(body, type=Naming)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, f"body: {shown(str(error))}: send {_BODY}") from None
    try:
        return fit(found.name)
    except ValueError as error:
        hint = " (to take the name away, send DELETE)" if not found.name.strip() else ""
        raise Refusal(400, f"name: {error}{hint}") from None
