"""`POST /v1/audio/transcriptions` and `/translations`, `GET /v1/models`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from dataclasses import replace
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from streaming.access.auth import ANYONE, CALLER
from streaming.background import first_of
from streaming.sessions.services import Services
from streaming.sockets.draining import Body
from streaming.wire.errors import WireError, shown
from streaming.wire.messages import Segment
from streaming.wire.render import FORMATS

from . import secrets
from .answer import Deltas, answer, diarized, usage
from .errors import ApiError, of_wire
from .form import Wanted, form_of, wanted
from .job import Job

_ANY = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def routes_of(services: Services) -> list[BaseRoute]:
    routes = Routes(services)
    return [
        Route("/v1/audio/transcriptions", routes.transcriptions, methods=_ANY),
        Route("/v1/audio/translations", routes.translations, methods=_ANY),
        *secrets.routes_of(services),
        Route("/v1/models", routes.models),
        Route("/v1/models/{id:path}", routes.model),
    ]


class Routes:
    """Belongs to one event loop."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._files = 0

    async def transcriptions(self, request: Request) -> Response:
        """A recording to text."""
        body = Body(request.receive)
        try:
            _only_post(request)
            return await self._transcribe(Request(request.scope, body))
        except ApiError as error:
            refusal = error
        except WireError as error:
            refusal = of_wire(error)
        self._services.metrics.refused.add(reason=refusal.code or str(refusal.status))
        if refusal.status not in (408, 499):
            await body.drain()
        return refusal.response()

    async def translations(self, request: Request) -> Response:
        """Not done by any engine here."""
        await Body(request.receive).drain()
        return ApiError(
            400,
            "this server does not translate: use /v1/audio/transcriptions, which writes the language spoken",
            code="unsupported_task",
        ).response()

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        if request.path_params["id"] != self._model()["id"]:
            name = shown(request.path_params["id"])
            return ApiError(404, f"model: {name} is not served here", code="model_not_found").response()
        return JSONResponse(self._model())

    def _model(self) -> dict[str, Any]:
        name = self._services.dispatcher.capabilities.model
        return {"id": name, "object": "model", "created": 0, "owned_by": "seamscribe"}

    async def _transcribe(self, request: Request) -> Response:
        services, limits = self._services, self._services.limits
        if (full := services.sessions.refusal()) is not None:
            raise of_wire(full)
        if self._files >= limits.max_files:
            raise ApiError(
                429,
                f"{self._files} recordings are being read (limits.max_files): try again later",
                code="too_many_files",
                retry_after_s=limits.retry_after_s,
            )
        caller = request.scope.get(CALLER) or ANYONE
        async with AsyncExitStack() as stack:
            # Before the first byte: else one key could hold the places of all.
            lease = services.quotas.lease(caller.key)
            stack.callback(lease.close)
            stack.enter_context(self._reading())
            form = await stack.enter_async_context(
                form_of(request, limits.max_file_bytes, limits.start_timeout_s)
            )
            asked = wanted(form)
            if asked.ignored:
                services.metrics.ignored.add(len(asked.ignored), protocol="openai")
            languages = services.dispatcher.capabilities.languages
            if asked.language is None and len(languages) == 1:
                asked = replace(asked, language=languages[0])  # the only one it can be
            job = Job(asked, services, lease, request.headers.get("traceparent"))
            stack.push_async_callback(job.close)
            stack.enter_context(services.sessions.seat())
            if asked.stream:
                return _Events(_events(job, asked), stack.pop_all())
            return await _whole(request, job, asked)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        self._files += 1
        try:
            yield
        finally:
            self._files -= 1


class _Events(StreamingResponse):
    """Server-sent events; what they need is released when they end, or their reader leaves."""

    def __init__(self, events: AsyncIterator[bytes], stack: AsyncExitStack) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._stack:
            await super().__call__(scope, receive, send)


async def _events(job: Job, asked: Wanted) -> AsyncIterator[bytes]:
    deltas, log = Deltas(), job.entry.log
    try:
        async with aclosing(job.said()) as said:
            async for message in said:
                if isinstance(message, Segment) and (delta := deltas.take(message)):
                    yield event({"type": "transcript.text.delta", "delta": delta})
    except ApiError as error:
        yield event(error.body)
        return
    except WireError as error:
        yield event(of_wire(error).body)
        return
    if asked.format == "diarized_json":
        for segment in diarized(log):
            yield event(segment)
    yield event({"type": "transcript.text.done", "text": deltas.text, "usage": usage(log)})


async def _whole(request: Request, job: Job, asked: Wanted) -> Response:
    await first_of(_listen(job), _gone(request))
    body = answer(job.entry.log, asked, job.entry.id)
    if isinstance(body, str):
        return PlainTextResponse(body, media_type=FORMATS[asked.format].media)
    return JSONResponse(body)


async def _listen(job: Job) -> None:
    async for _ in job.said():
        pass


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    raise ApiError(499, "the client left", code="client_left")


def _only_post(request: Request) -> None:
    if request.method != "POST":
        raise ApiError(
            405, f"method: {request.method} is not served here: use POST", code="method_not_allowed"
        )


def event(body: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
