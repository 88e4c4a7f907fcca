"""`POST /v1/tokens`: a key's holder gets a token for a browser, which may be told no key."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from streaming.access.auth import Caller, TooManyTokens
from streaming.access.keys import Scope
from streaming.access.naming import Refused, body_of
from streaming.denial import later
from streaming.sessions.services import Services
from streaming.wire.errors import shown

_WANTED = '{"scope": "speak" | "read" | "watch", "seconds": 60, "session": "..."}, each optional'


class Order(Struct, frozen=True, forbid_unknown_fields=True):
    """What the token shall be good for."""

    scope: Scope = Scope.SPEAK
    seconds: Annotated[float, Meta(gt=0)] | None = None
    """How long it may wait to be used; None, as the most: `auth.token_s`."""
    session: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{1,128}\Z")] | None = None
    """The only session that may be read with it."""


def order_of(body: bytes) -> Order:
    """What a body asks for, an empty one what nobody says otherwise; raises `Refused`."""
    try:
        return msgspec.json.decode(body or b"{}", type=Order)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, f"body: {shown(str(error))}: send {_WANTED}.") from None


async def mint(request: Request, services: Services, caller: Caller) -> Response:
    """A token that works once, with one scope of the key's."""
    if services.auth.open:
        return _no(409, "no keys are set here, so no token is needed: leave it out")
    if not caller.mints:
        return _no(403, "Authorization: tokens are for keys only: send the key")
    try:
        order = order_of(await body_of(request, services.limits.start_timeout_s, _WANTED))
    except Refused as refused:
        return PlainTextResponse(f"{refused}\n", refused.status, {"connection": "close"})
    if order.scope is Scope.ADMIN:
        return _no(403, "scope: no token has admin: use the key")
    if not caller.may(order.scope):
        return _no(403, f"scope: {order.scope} is not one of this key's")
    if order.session is not None and order.scope is not Scope.READ:
        return _no(400, "session: goes with the scope read: leave it out")
    seconds = min(order.seconds or services.token_s, services.token_s)
    try:
        token = await services.auth.mint(caller, order.scope, seconds, order.session)
    except TooManyTokens:
        return PlainTextResponse(
            "Too many tokens wait to be used: use them, or wait until they expire.\n",
            429,
            later(services.token_s),
        )
    return JSONResponse({"token": token, "scope": order.scope, "expires_in_s": seconds}, status_code=201)


def _no(status: int, message: str) -> Response:
    return PlainTextResponse(f"{message}.\n", status)
