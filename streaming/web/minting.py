"""`POST /v1/tokens`: a key's holder gets a token for a browser, which may be told no key."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from streaming.access.auth import Caller, TooManyTokens
from streaming.access.keys import Scope
from streaming.access.naming import body_of
from streaming.denial import Refusal, plainly, turned_away
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
    """What a body asks for, an empty one what nobody says otherwise; raises `Refusal`."""
    try:
        return msgspec.json.decode(body or b"{}", type=Order)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, f"body: {shown(str(error))}: send {_WANTED}") from None


async def mint(request: Request, services: Services, caller: Caller) -> Response:
    """A token that works once, with one scope of the key's."""
    try:
        return await _minted(request, services, caller)
    except Refusal as refusal:
        return turned_away(plainly, refusal)


async def _minted(request: Request, services: Services, caller: Caller) -> Response:
    if services.auth.open:
        raise Refusal(409, "no keys are set here, so no token is needed: leave it out")
    if not caller.mints:
        raise Refusal(403, "Authorization: tokens are for keys only: send the key")
    order = order_of(await body_of(request, services.limits.start_timeout_s, _WANTED))
    if order.scope is Scope.ADMIN:
        raise Refusal(403, "scope: no token has admin: use the key")
    if not caller.may(order.scope):
        held = ", ".join(sorted(caller.scopes))
        raise Refusal(403, f"scope: {order.scope} is not one of this key's: use {held}")
    if order.session is not None and order.scope is not Scope.READ:
        raise Refusal(400, "session: goes with the scope read: leave it out")
    seconds = min(order.seconds or services.token_s, services.token_s)
    try:
        token = await services.auth.mint(caller, order.scope, seconds, order.session)
    except TooManyTokens:
        raise Refusal(
            429,
            "too many tokens wait to be used: use them, or wait until they expire",
            retry_after_s=services.token_s,
        ) from None
    return JSONResponse({"token": token, "scope": order.scope, "expires_in_s": seconds}, status_code=201)
