"""`POST /v1/audio/transcriptions` and `/v1/audio/translations`, `GET /v1/models`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, suppress
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from streaming.denial import Refusal, of_wire
from streaming.files.desk import ANY, Desk, heard
from streaming.files.job import Asked, Job, Progress
from streaming.sessions.services import Services
from streaming.sockets.patience import patient
from streaming.wire.errors import WireError, shown
from streaming.wire.messages import Segment
from streaming.wire.render import FORMATS

from . import secrets
from .answer import Deltas, Told, answer, diarized, usage
from .errors import body_of, refuse
from .form import Wanted, form_of, wanted


def routes_of(services: Services, desk: Desk) -> list[BaseRoute]:
    routes = Routes(services, desk)
    return [
        Route("/v1/audio/transcriptions", routes.transcriptions, methods=ANY),
        Route("/v1/audio/translations", routes.translations, methods=ANY),
        *secrets.routes_of(services),
        Route("/v1/models", routes.models),
        Route("/v1/models/{id:path}", routes.model),
    ]


class Routes:
    """Belongs to one event loop."""

    def __init__(self, services: Services, desk: Desk) -> None:
        self._services = services
        self._desk = desk

    async def transcriptions(self, request: Request) -> Response:
        """A recording to text."""
        return await self._desk.answer(request, self._transcribe, refuse)

    async def translations(self, request: Request) -> Response:
        """A recording to English, whatever is spoken."""
        return await self._desk.answer(request, self._translate, refuse)

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        if request.path_params["id"] != self._model()["id"]:
            name = shown(request.path_params["id"])
            message = f"model: {name} is not served here: use {self._model()['id']}"
            return refuse(Refusal(404, message, code="model_not_found"))
        return JSONResponse(self._model())

    def _model(self) -> dict[str, Any]:
        name = self._services.dispatcher.capabilities.model
        return {"id": name, "object": "model", "created": 0, "owned_by": "seamscribe"}

    async def _transcribe(self, request: Request) -> Response:
        return await self._carry_out(request, translate=False)

    async def _translate(self, request: Request) -> Response:
        return await self._carry_out(request, translate=True)

    async def _carry_out(self, request: Request, *, translate: bool) -> Response:
        services, limits = self._services, self._services.limits
        async with AsyncExitStack() as stack:
            lease = await stack.enter_async_context(self._desk.place(request))
            form = await stack.enter_async_context(
                form_of(request, limits.max_file_bytes, limits.start_timeout_s)
            )
            asked = wanted(form)
            if asked.ignored:
                services.metrics.ignored.add(len(asked.ignored), protocol="openai")
            work = Asked(asked.file, asked.start, translate=translate)
            job = await stack.enter_async_context(self._desk.job(work, lease, request))
            if asked.stream:
                return _Events(_events(job, asked), stack.pop_all(), limits.slow_reader_s)
            await heard(job, request)
            languages = services.dispatcher.capabilities.languages
            told = Told(translate, asked.language or (languages[0] if len(languages) == 1 else None))
            # Half a second for a meeting of eight hours: not in the event loop.
            return await asyncio.to_thread(_body, job, asked, told)


def _body(job: Job, asked: Wanted, told: Told) -> Response:
    body = answer(job.entry.log, asked, job.entry.id, told)
    if isinstance(body, str):
        return PlainTextResponse(body, media_type=FORMATS[asked.format].media)
    return Response(msgspec.json.encode(body), media_type="application/json")


class _Events(StreamingResponse):
    """Server-sent events; what they need is released when they end, or their reader leaves or takes nothing
    for `patience_s`."""

    def __init__(self, events: AsyncIterator[bytes], stack: AsyncExitStack, patience_s: float) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._stack = stack
        self._patience_s = patience_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._stack:
            with suppress(TimeoutError, ClientDisconnect):
                await super().__call__(scope, receive, patient(send, self._patience_s))


async def _events(job: Job, asked: Wanted) -> AsyncIterator[bytes]:
    deltas, log = Deltas(), job.entry.log
    try:
        async with aclosing(job.said()) as said:
            async for message in said:
                if isinstance(message, Segment) and (delta := deltas.take(message)):
                    yield event({"type": "transcript.text.delta", "delta": delta})
                elif isinstance(message, Progress):
                    yield event(progress(message))
    except Refusal as error:
        yield event(body_of(error))
        return
    except WireError as error:
        yield event(body_of(of_wire(error)))
        return
    if asked.format == "diarized_json":
        for segment in diarized(log):
            yield event(segment)
    yield event({"type": "transcript.text.done", "text": deltas.text, "usage": usage(log)})


def progress(message: Progress) -> dict[str, Any]:
    """Not one of theirs: their programs pass over types they do not know."""
    done_s, read_s = round(message.done_s, 1), round(message.read_s, 1)
    return {"type": "transcript.progress", "seconds": done_s, "of": read_s}


def event(body: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
