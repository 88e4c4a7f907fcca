"""The gate in front of all routes: to which names this server answers, whose pages may ask, who may what.

Everything is closed but what a rule opens: a route without one is the administrator's. Two doors are open to
anybody, `PUBLIC`, and the pages to whoever means this server, for what they show they have to ask for. On
sockets a browser may say who it is in its first message; whoever serves such a socket asks `Authority.admit`
again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers as AsgiHeaders
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope
from starlette.websockets import WebSocket

from streaming.access import tokens
from streaming.access.auth import CALLER, LONGEST, Caller, secret_of
from streaming.access.keys import Scope
from streaming.denial import Deny, denial, plainly, refused
from streaming.dialects import deepgram
from streaming.dialects.dialect import Way
from streaming.dialects.query import Query
from streaming.dialects.ways import WAYS
from streaming.errors import Unreadable
from streaming.openai import errors as openai
from streaming.sessions.services import Services
from streaming.sockets.draining import Body
from streaming.sockets.relay import HOPPED, Relay, Unreachable, hopped, no_answer
from streaming.wire.errors import shown

from . import pages

PUBLIC = frozenset({"/healthz", "/readyz"})

UPLOADS = ("/v1/audio/", deepgram.PATH)
"""Where requests are so large that their clients still send when they are refused."""

_SESSION = re.compile(r"/v1/sessions/([^/]*)(?:/.*)?", re.DOTALL)
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


@dataclass(frozen=True, slots=True)
class Rule:
    """What one kind of request needs."""

    methods: frozenset[str]
    path: re.Pattern[str]
    scopes: tuple[Scope, ...]
    """Any of them."""
    deny: Deny = plainly
    """How a refusal reads."""
    key_headers: tuple[str, ...] = ()
    """Where else a secret may stand: as the value of a header, in lower case,"""
    key_queries: tuple[str, ...] = ()
    """or of a name in the query."""
    key_later: bool = False
    """Whether the client of a socket may say in its first message who it is."""

    def secret(self, scope: AsgiScope) -> str | None:
        """The key or token of a request, wherever it may stand; None where there is none."""
        found = secret_of(scope["headers"], scope.get("subprotocols", ()))
        if found is None and self.key_headers:
            headers = AsgiHeaders(raw=scope["headers"])
            found = next((headers[name] for name in self.key_headers if name in headers), None)
        if found is None and self.key_queries:
            query = Query.parse(scope["query_string"].decode("latin-1"))
            found = next((value for name in self.key_queries if (value := query.text(name))), None)
        return found


def _rule(methods: str, path: str, *scopes: Scope, deny: Deny = plainly, **more: Any) -> Rule:
    return Rule(frozenset(methods.split()), re.compile(path), scopes, deny, **more)


def _way(way: Way) -> Rule:
    return Rule(
        frozenset({SOCKET}),
        re.compile(re.escape(way.path)),
        (Scope.SPEAK,),
        way.deny,
        way.key_headers,
        way.key_queries,
        way.key_later,
    )


SOCKET = "SOCKET"
"""The method of a websocket's handshake, here."""

RULES = (
    _rule("SOCKET GET HEAD", r"/v1/stream", Scope.SPEAK, key_later=True),
    _rule("SOCKET", r"/v1/sessions/[^/]+/events", Scope.READ, key_later=True),
    _rule("GET HEAD", r"/v1/sessions/[^/]+/transcript\.[a-z0-9]+", Scope.READ),
    _rule("GET HEAD", r"/v1/sessions/[^/]+/audio\.flac", Scope.READ),
    # A player takes an address and nothing else.
    _rule(
        "GET HEAD",
        r"/v1/sessions/[^/]+/(?:live\.vtt|captions\.m3u8|captions/[0-9]+\.vtt)",
        Scope.READ,
        key_queries=("token",),
    ),
    _rule("PUT DELETE", r"/v1/sessions/[^/]+/speakers/[^/]+", Scope.SPEAK),
    _rule("POST", r"/v1/tokens", Scope.SPEAK, Scope.READ),
    _rule("GET HEAD", r"/metrics", Scope.WATCH),
    _rule("GET HEAD POST PUT PATCH DELETE", r"/v1/audio/[^/]*", Scope.SPEAK, deny=openai.deny),
    _rule("GET HEAD POST PUT PATCH DELETE", re.escape(deepgram.PATH), Scope.SPEAK, deny=deepgram.deny),
    _rule("GET HEAD", r"/v1/models(?:/.*)?", Scope.SPEAK, Scope.READ, deny=openai.deny),
    _rule("POST", r"/v1/realtime/(?:client_secrets|transcription_sessions)", Scope.SPEAK, deny=openai.deny),
    *map(_way, WAYS),
)
_ADMIN = _rule("", "", Scope.ADMIN)

HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""On every answer that does not say otherwise. A page brings a policy of its own."""

_HSTS = "max-age=31536000"


class Guard:
    """ASGI in front of the application."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services
        self._auth = services.auth
        self._sites = services.sites

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope["headers"])
        send = _dressed(scope, send, self._shared(headers.origin))
        try:
            refusal = await self._judge(scope, headers)
        except Unreadable as error:
            refusal = refused(plainly, error)
        if refusal is None:
            await self._app(scope, receive, send)
        elif isinstance(refusal, Relay):
            await self._pass_on(refusal, scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocket(scope, receive, send).send_denial_response(refusal)
        else:
            if scope["path"].startswith(UPLOADS):
                await Body(receive).drain()
            await refusal(scope, receive, send)

    async def _pass_on(self, relay: Relay, scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            await relay(scope, receive, send)
        except Unreachable:
            if scope["type"] == "http" and scope["method"] in ("GET", "HEAD"):
                # What the session said so far is in the journal too.
                await self({**scope, "headers": [*scope["headers"], HOPPED]}, receive, send)
            else:
                await no_answer(scope, receive, send)

    async def _judge(self, scope: AsgiScope, headers: Headers) -> Response | Relay | None:
        """None where the request may go on; its caller is in the scope then. A relay where another process
        is to answer, who may ask included."""
        path = scope["path"]
        method = SOCKET if scope["type"] == "websocket" else scope["method"]
        if path in PUBLIC and method in ("GET", "HEAD"):
            scope[CALLER] = None
            return None
        rule = next((r for r in RULES if method in r.methods and r.path.fullmatch(path)), _ADMIN)
        if refusal := self._site(headers, rule.deny):
            return refusal
        if pages.PATHS.fullmatch(path) and method in ("GET", "HEAD"):
            scope[CALLER] = None
            return None
        if method == "OPTIONS" and headers.origin and self._sites.listed(headers.origin):
            return Response(status_code=204, headers=_PREFLIGHT)
        session = _SESSION.fullmatch(path)
        if session and not _ID.fullmatch(session.group(1)):
            return denial(rule.deny, 404, "session: is an id of letters, digits, - and _")
        id = session.group(1) if session else None
        address = await self._elsewhere(scope, id)
        return Relay(address, self._services) if address else await self._admit(scope, rule, id)

    async def _elsewhere(self, scope: AsgiScope, id: str | None) -> str | None:
        """The address of another process that has the session."""
        peers = self._services.peers
        return None if id is None or peers is None or hopped(scope) else await peers.owner(id)

    async def _admit(self, scope: AsgiScope, rule: Rule, id: str | None) -> Response | None:
        secret = rule.secret(scope)
        if secret is None and rule.key_later and scope["type"] == "websocket" and not self._auth.open:
            scope[CALLER] = None  # the first message may say
            return None
        caller = await self._auth.caller(secret) or await self._of_session(id, secret)
        wanted = " or ".join(rule.scopes)
        if caller is None:
            self._services.metrics.refused.add(reason="unauthorized")
            return denial(
                rule.deny,
                401,
                f"Authorization: a key or token with the scope {wanted} is needed: send Bearer and the key",
                {"www-authenticate": 'Bearer realm="seamscribe"'},
            )
        if not any(caller.may(one, id) for one in rule.scopes):
            self._services.metrics.refused.add(reason="forbidden")
            return denial(
                rule.deny,
                403,
                f"Authorization: the scope {wanted} is needed, and what was sent has it not",
            )
        scope[CALLER] = caller
        return None

    async def _of_session(self, id: str | None, secret: str | None) -> Caller | None:
        """Whoever shows a token of the session that it asks about."""
        if id is None or not secret or len(secret) > LONGEST:
            return None
        entry, history = self._services.sessions.find(id), self._services.history
        if entry is not None:
            digests = (entry.token_digest, entry.read_digest)
        elif history is None or (digests := await history.digests(id) or (b"", b"")) == (b"", b""):
            return None
        own, reading = (bool(kept) and tokens.fits(secret, kept) for kept in digests)
        if own:
            return Caller(scopes=frozenset({Scope.SPEAK, Scope.READ}), session=id)
        return Caller(scopes=frozenset({Scope.READ}), session=id) if reading else None

    def _site(self, headers: Headers, deny: Deny) -> Response | None:
        if not self._sites.answers_to(headers.host, open=self._auth.open):
            return denial(
                deny,
                421,
                f"Host: {shown(headers.host or '')} is no name of this server: use its address, or list the"
                " name in sites.hosts",
            )
        if headers.origin is not None and not self._sites.welcome(headers.origin, headers.host):
            return denial(
                deny,
                403,
                f"Origin: pages of {shown(headers.origin)} may not ask here: list the site in sites.origins",
            )
        return None

    def _shared(self, origin: str | None) -> dict[str, str]:
        """What lets a listed site's page read the answer."""
        if origin is None or not self._sites.listed(origin) or any(ord(c) < 33 for c in origin):
            return {}
        return {
            "access-control-allow-origin": origin,
            "vary": "Origin",
            "cross-origin-resource-policy": "cross-origin",
        }


_PREFLIGHT = {
    "access-control-allow-methods": "GET, POST, PUT, DELETE",
    "access-control-allow-headers": "authorization, content-type",
    "access-control-max-age": "600",
}


class Headers:
    """The two that tell where a request comes from, and whom it means."""

    def __init__(self, raw: Sequence[tuple[bytes, bytes]]) -> None:
        found = dict(raw)
        self.host = _text(found.get(b"host"))
        self.origin = _text(found.get(b"origin"))


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1").strip()


def _dressed(scope: AsgiScope, send: Send, shared: dict[str, str]) -> Send:
    """Sends answers with the headers that all have."""
    defaults = {**HEADERS, **shared}
    if scope.get("scheme") in ("https", "wss"):
        defaults["strict-transport-security"] = _HSTS

    async def dressed(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            headers = MutableHeaders(scope=message)
            for name, value in defaults.items():
                headers.setdefault(name, value)
        await send(message)

    return dressed
