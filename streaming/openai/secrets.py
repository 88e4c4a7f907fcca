"""`POST /v1/realtime/client_secrets`, and the beta's `/v1/realtime/transcription_sessions`: a token for a
browser, which opens one session as it was described here."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from streaming.access.auth import CALLER, Caller, TooManyTokens
from streaming.access.naming import body_of
from streaming.access.tokens import fresh_id
from streaming.denial import Refusal, of_wire
from streaming.dialects.lenient import json_of
from streaming.dialects.openai_session import Wishes
from streaming.sessions.services import Services
from streaming.wire.errors import WireError

from .errors import refuse

PREFIX = "ek_"
"""Their libraries know by it that a secret may be shown to a browser."""

_WANTED = '{"expires_after": {"anchor": "created_at", "seconds": 60}, "session": {...}}'


def routes_of(services: Services) -> list[BaseRoute]:
    secrets = Secrets(services)
    return [
        Route("/v1/realtime/client_secrets", secrets.present, methods=["POST"]),
        Route("/v1/realtime/transcription_sessions", secrets.beta, methods=["POST"]),
    ]


class Secrets:
    """Makes them."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def present(self, request: Request) -> Response:
        """`{value, expires_at, session}`."""
        return await self._answer(request, beta=False)

    async def beta(self, request: Request) -> Response:
        """The session, with its `client_secret`."""
        return await self._answer(request, beta=True)

    async def _answer(self, request: Request, *, beta: bool) -> Response:
        try:
            return JSONResponse(await self._made(request, beta=beta))
        except Refusal as error:
            return refuse(error)
        except WireError as error:
            return refuse(of_wire(error))

    async def _made(self, request: Request, *, beta: bool) -> dict[str, Any]:
        services, caller = self._services, request.scope[CALLER]
        if not caller.mints and not services.auth.open:
            raise Refusal(403, "Authorization: secrets are for keys only: send the key")
        body = json_of(await body_of(request, services.limits.start_timeout_s, _WANTED) or b"{}")
        session = body if beta else body.get("session")
        wishes = Wishes()
        ignored = wishes.update(session)
        services.metrics.ignored.add(len(ignored), protocol="openai")
        wishes.start()
        seconds = min(_seconds(body.get("expires_after")), services.token_s)
        told = wishes.told(fresh_id(), beta=beta)
        secret = {
            "value": await self._token(caller, session, seconds),
            "expires_at": int(time.time() + seconds),
        }
        return {**told, "client_secret": secret} if beta else {**secret, "session": told}

    async def _token(self, caller: Caller, session: object, seconds: float) -> str:
        note = msgspec.json.encode(session).decode() if isinstance(session, Mapping) else ""
        try:
            return await self._services.auth.mint_for(caller, note, seconds, PREFIX)
        except TooManyTokens:
            raise Refusal(
                429,
                "too many secrets wait to be used: use them, or wait until they expire",
                code="too_many_tokens",
                retry_after_s=self._services.token_s,
            ) from None


def _seconds(wanted: object) -> float:
    seconds = wanted.get("seconds") if isinstance(wanted, Mapping) else None
    if seconds is None:
        return 600.0
    if not isinstance(seconds, int | float) or not 1 <= seconds <= 7200:
        raise Refusal(
            400, "expires_after.seconds: use 1 to 7200, or leave it out", param="expires_after.seconds"
        )
    return float(seconds)
