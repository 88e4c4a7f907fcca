"""`POST /v1/listen`: Deepgram's answer to a recording, which is the body itself."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from streaming.audio.demux import file_channels
from streaming.denial import Refusal, denial, later_than
from streaming.dialects.deepgram import PATH, deny, wishes_of
from streaming.dialects.deepgram_recording import Form, answer, form_of
from streaming.dialects.deepgram_shapes import About, metadata
from streaming.dialects.query import Query
from streaming.files.desk import ANY, Desk, heard
from streaming.files.job import Asked, Job
from streaming.files.upload import Upload, body_of
from streaming.sessions.services import Services
from streaming.wire.messages import Encoding, Start, Track


def routes_of(services: Services, desk: Desk) -> list[BaseRoute]:
    return [Route(PATH, Routes(services, desk).listen, methods=ANY)]


class Routes:
    """Belongs to one event loop."""

    def __init__(self, services: Services, desk: Desk) -> None:
        self._services = services
        self._desk = desk

    async def listen(self, request: Request) -> Response:
        """A recording to text."""
        return await self._desk.answer(request, self._listen, _refuse)

    async def _listen(self, request: Request) -> Response:
        services, limits = self._services, self._services.limits
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json":
            raise Refusal(
                400,
                "url: this server fetches nothing for anybody: send the recording itself as the body",
                code="unsupported",
                param="url",
            )
        query = Query.parse(request.scope["query_string"].decode("latin-1"))
        wishes = wishes_of(query, redacts=services.redact is not None)
        form = form_of(
            query,
            diarize=wishes.diarize,
            punctuated=wishes.punctuated,
            told=wishes.start.language is not None,
        )
        separate = query.flag("multichannel")
        services.metrics.ignored.add(len(query.unread), protocol="deepgram")
        async with (
            self._desk.place(request) as lease,
            body_of(request, limits.max_file_bytes, limits.start_timeout_s) as upload,
        ):
            # Nobody waits for the moment in which somebody begins to speak.
            start = replace(wishes.start, options=replace(wishes.start.options, activity_pause_s=None))
            start = await _divided(start, upload) if separate else start
            async with self._desk.job(Asked(upload.file, start), lease, request) as job:
                await heard(job, request)
                body = await asyncio.to_thread(_body, job, form, upload.sha256, len(start.tracks) or 1)
        return Response(body, media_type="application/json", headers={"dg-request-id": job.entry.id})


async def _divided(start: Start, upload: Upload) -> Start:
    """Each channel of the recording as a track, where there are several."""
    if start.audio.encoding is not Encoding.CONTAINER:
        return start  # the query says how many there are
    channels = await asyncio.to_thread(file_channels, upload.file)
    if channels == 1:
        return replace(start, tracks=())
    options = replace(start.options, speakers=None)
    return replace(start, tracks=(Track(),) * channels, options=options)


def _body(job: Job, form: Form, sha256: str, channels: int) -> bytes:
    """The answer, which takes a second for a meeting of eight hours: not in the event loop."""
    ready, receipt = job.entry.ready, job.entry.log.receipt
    assert ready is not None
    assert receipt is not None
    created = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    about = About(job.entry.id, created).knowing(ready)
    told = metadata(about, sha256, receipt.duration_ms, channels)
    return msgspec.json.encode(answer(job.entry.log.segments(), form, told, channels))


def _refuse(refusal: Refusal) -> Response:
    return denial(deny, refusal.status, refusal.message, later_than(refusal))
