"""Routes: the socket, health, metrics, transcripts."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from streaming.access.auth import CALLER, spoken
from streaming.access.naming import naming
from streaming.deepgram import routes as deepgram
from streaming.denial import Refusal, plainly, refused, turned_away
from streaming.dialects.dialect import Way
from streaming.dialects.ways import WAYS
from streaming.errors import Unreadable
from streaming.files.desk import Desk
from streaming.kept.transcripts import export
from streaming.openai import routes as openai
from streaming.sessions.services import Services
from streaming.sockets.bridge import serve
from streaming.sockets.connection import STREAM, Connection
from streaming.sockets.reader import Reader
from streaming.sockets.relay import hopped
from streaming.sockets.transport import SocketChannel
from streaming.version import version
from streaming.wire.codec import SUBPROTOCOLS, Codec, choose
from streaming.wire.errors import shown
from streaming.wire.messages import Read
from streaming.wire.render import BY_ENDING, FORMATS

from . import listing, pages, webvtt
from .guard import Guard
from .hls import Hls
from .listing import NO_SESSION
from .minting import mint

_ONE_OF_MANY = (
    "Several processes answer here, each with its own metrics: set cluster.port, and ask the first of them at"
    " cluster.host and that port, each of the others at the next one.\n"
)


def build(services: Services) -> Guard:
    """The ASGI application over running services; it starts and stops nothing itself."""
    app = Starlette(routes=routes_of(services), exception_handlers={Unreadable: _unreadable})
    return Guard(app, services)


def _unreadable(_: Request, error: Exception) -> Response:
    """Of a route that needs what the journal has."""
    assert isinstance(error, Unreadable)
    return refused(plainly, error)


def routes_of(services: Services) -> list[BaseRoute]:
    """Everything that is answered; what each needs is in `guard.RULES`."""
    routes, hls, desk = Routes(services), Hls(services), Desk(services)
    return [
        WebSocketRoute(STREAM, routes.stream),
        WebSocketRoute("/v1/sessions/{id}/events", routes.events),
        *(WebSocketRoute(way.path, routes.way(way)) for way in WAYS),
        WebSocketRoute("/{path:path}", routes.nowhere),
        Route(STREAM, routes.no_websocket),
        Route("/healthz", routes.healthz),
        Route("/readyz", routes.readyz),
        Route("/metrics", routes.metrics),
        Route("/v1/sessions", routes.sessions),
        Route("/v1/sessions/{id}", routes.session, methods=["DELETE"]),
        Route("/v1/sessions/{id}/transcript.{format}", routes.transcript),
        Route("/v1/sessions/{id}/audio.flac", routes.audio),
        Route("/v1/sessions/{id}/live.vtt", routes.captions),
        Route("/v1/sessions/{id}/captions.m3u8", hls.playlist),
        Route("/v1/sessions/{id}/captions/{number}.vtt", hls.segment),
        Route("/v1/sessions/{id}/speakers/{number}", routes.speaker, methods=["PUT", "DELETE"]),
        Route("/v1/tokens", routes.tokens, methods=["POST"]),
        *openai.routes_of(services, desk),
        *deepgram.routes_of(services, desk),
        *pages.routes(),
    ]


class Routes:
    """What the server answers."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def stream(self, websocket: WebSocket) -> None:
        """One client of the native protocol. New ones are refused before the upgrade where there is no room;
        who comes back says so in the query, for who it is follows only after."""
        refusal = self._services.sessions.refusal() if "resume" not in websocket.query_params else None
        if refusal is not None:
            self._services.metrics.refused.add(reason=refusal.code)
            await websocket.send_denial_response(refused(plainly, refusal))
        elif (codec := await self._accepted(websocket)) is not None:
            caller, trace = websocket.scope[CALLER], websocket.headers.get("traceparent")
            channel = SocketChannel(websocket)
            peers = None if hopped(websocket.scope) else self._services.peers
            await Connection(channel, codec, self._services, caller, traceparent=trace, peers=peers).run()

    def way(self, way: Way) -> Callable[[WebSocket], Awaitable[None]]:
        """One client of another protocol."""

        async def met(websocket: WebSocket) -> None:
            await serve(websocket, way, self._services)

        return met

    async def events(self, websocket: WebSocket) -> None:
        """One reader of a session."""
        query = dict(websocket.query_params)
        # Without keys everybody may ask, but only a session's own token lets them read it, by its id.
        caller = None if self._services.auth.open else websocket.scope[CALLER]
        if caller is not None:
            query["token"] = "-"
        try:
            # As strings, so that both are checked as the first message would be.
            read = msgspec.convert(query, Read, strict=False) if "token" in query else None
        except msgspec.ValidationError as error:
            await websocket.send_denial_response(
                PlainTextResponse(f"{shown(str(error))}: use ?token=T&after=SEQ, or none.\n", status_code=400)
            )
            return
        if (codec := await self._accepted(websocket)) is not None:
            channel, id = SocketChannel(websocket), websocket.path_params["id"]
            await Reader(channel, codec, self._services, id, read, caller).run()

    async def _accepted(self, websocket: WebSocket) -> Codec | None:
        """The codec that both sides speak, once the handshake is done; None where there is none."""
        offered = spoken(websocket.scope.get("subprotocols", []))
        # One who offers a secret alone would get no answer that a browser takes.
        codec = choose(offered) if offered or not websocket.scope.get("subprotocols") else None
        if codec is None:
            await websocket.send_denial_response(
                PlainTextResponse(
                    f"No known websocket subprotocol was offered: use one of {', '.join(SUBPROTOCOLS)},"
                    " or none for JSON.\n",
                    status_code=400,
                )
            )
            return None
        await websocket.accept(subprotocol=codec.name if offered else None)
        return codec

    async def nowhere(self, websocket: WebSocket) -> None:
        """A websocket to any other path."""
        await websocket.send_denial_response(
            PlainTextResponse(f"No websocket is here: connect to {STREAM}.\n", status_code=404)
        )

    async def no_websocket(self, _: Request) -> Response:
        """A plain request where the websocket is."""
        return PlainTextResponse(
            f"{STREAM} speaks websocket only: connect with ws:// or wss://.\n",
            status_code=426,
            headers={"upgrade": "websocket", "connection": "upgrade"},
        )

    async def healthz(self, _: Request) -> Response:
        """The process lives."""
        return PlainTextResponse("ok\n")

    async def readyz(self, _: Request) -> Response:
        """Whether a new client would be taken and served now."""
        sessions = self._services.sessions
        reason = await self._unready()
        body = {"ready": reason is None, "reason": reason, "sessions": sessions.active}
        return JSONResponse(body, status_code=503 if reason else 200)

    async def _unready(self) -> str | None:
        """Why a new client should go elsewhere: what lasts longest first."""
        services = self._services
        if services.sessions.draining:
            return "draining"
        if not await services.pulse.beats():
            return "engine"
        if services.history is not None and services.history.wanting:
            return "journal"
        return "full" if services.sessions.refusal() is not None else None

    async def metrics(self, request: Request) -> Response:
        """Prometheus text, of this process: not where another one may answer the next time."""
        own = self._services.own_port
        if own is not None and own != request.scope["server"][1]:
            return PlainTextResponse(_ONE_OF_MANY, 409)
        metrics, load = self._services.metrics, self._services.dispatcher.load
        serving = self._services.dispatcher.capabilities
        metrics.build.set(1, version=version(), engine=serving.engine, model=serving.model)
        metrics.sessions.set(self._services.sessions.active)
        metrics.waiting.set(load.waiting)
        metrics.running.set(load.running)
        metrics.utilisation.set(load.utilisation)
        metrics.stretch.set(load.stretch)
        metrics.brief.set(load.brief)
        sessions = self._services.sessions
        metrics.look(idle=not sessions.seated and not sessions.active)
        metrics.engine_counts.show(self._services.engine_counts())
        return PlainTextResponse(
            metrics.exposition(), headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def transcript(self, request: Request) -> Response:
        """What a session said so far."""
        ending, id = request.path_params["format"], request.path_params["id"]
        if (format := BY_ENDING.get(ending)) is None:
            return PlainTextResponse(
                f"No format {shown(ending)}: use one of {', '.join(BY_ENDING)}.\n", status_code=404
            )
        log = await listing.log(id, self._services)
        if log is None:
            return PlainTextResponse(NO_SESSION, status_code=404)
        return Response(
            export(log, format, id),
            media_type=FORMATS[format].media,
            headers={"cache-control": "no-store"},
        )

    async def sessions(self, request: Request) -> Response:
        """The list of all that are kept."""
        return await listing.page(request, self._services)

    async def audio(self, request: Request) -> Response:
        """What was kept of its audio."""
        return await listing.audio(request, self._services)

    async def captions(self, request: Request) -> Response:
        """Its captions, as they come."""
        return await webvtt.live(request, self._services)

    async def session(self, request: Request) -> Response:
        """Remove every trace of one."""
        return await listing.delete(request, self._services)

    async def tokens(self, request: Request) -> Response:
        """A token for a browser."""
        return await mint(request, self._services, request.scope[CALLER])

    async def speaker(self, request: Request) -> Response:
        """Give a speaker a name (PUT), or take it away again (DELETE): told to the session's client, and
        from then on in its transcript."""
        patience_s = self._services.limits.start_timeout_s
        try:
            name = await naming(request, patience_s) if request.method == "PUT" else ""
        except Refusal as refusal:
            return turned_away(plainly, refusal)
        entry = self._services.sessions.find(request.path_params["id"])
        if entry is None:
            return PlainTextResponse(NO_SESSION, status_code=404)
        number = request.path_params["number"]
        try:
            # Not `isdigit`, which takes digits of all scripts, nor without a bound: `int` takes its time.
            speaker = int(number) if re.fullmatch(r"[1-9][0-9]{0,3}", number) else 0
            entry.rename(speaker, name)
        except KeyError:
            return PlainTextResponse(
                f"No speaker {shown(number)} in this session: use the number that its segments carry.\n",
                status_code=404,
            )
        return JSONResponse({"speaker": speaker, "name": name}) if name else Response(status_code=204)
