"""`GET /v1/sessions/{id}/live.vtt`: WebVTT that grows as people speak, and ends with the session."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from streaming.denial import plainly, refused
from streaming.errors import TooManyReaders
from streaming.kept.log import Cursor, Log
from streaming.kept.transcripts import ms
from streaming.sessions.registry import Entry
from streaming.sessions.services import Services
from streaming.sockets.patience import patient
from streaming.wire.growing import GrowingCues
from streaming.wire.render import VTT, vtt_cue

from . import listing

LOOK_S = 0.5
"""How far the audio is, is looked at this often: a cue ends when nobody speaks on."""

BEAT_S = 15.0
"""After so long without a cue a comment is sent, so that nobody on the way takes the line for dead."""

BEAT = "\nNOTE\n"
MEDIA = "text/vtt; charset=utf-8"


async def live(request: Request, services: Services) -> Response:
    """What was said so far, then each cue as soon as it is whole."""
    id = request.path_params["id"]
    log = await listing.log(id, services)
    if log is None:
        return PlainTextResponse(listing.NO_SESSION, status_code=404)
    entry, limits = services.sessions.find(id), services.limits
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    if request.method == "HEAD":
        return Response(headers=headers, media_type=MEDIA)
    if entry is not None and entry.readers >= limits.max_readers:
        return refused(plainly, TooManyReaders(entry.readers, round(limits.retry_after_s * 1000)))
    return _Growing(_said(log, entry), services, entry, headers)


class _Growing(StreamingResponse):
    """Counts as a reader; one that takes nothing for `slow_reader_s` is cut off."""

    def __init__(
        self, said: AsyncIterator[str], services: Services, entry: Entry | None, headers: dict[str, str]
    ) -> None:
        super().__init__(said, headers=headers, media_type=MEDIA)
        self._services = services
        self._entry = entry or Entry("")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        taken = patient(send, self._services.limits.slow_reader_s)
        self._entry.readers += 1
        self._services.metrics.readers.add()
        try:
            with self._services.sessions.seat():
                await super().__call__(scope, receive, taken)
        except (TimeoutError, ClientDisconnect):
            pass  # uvicorn closes what was not finished
        finally:
            self._entry.readers -= 1


async def _said(log: Log, entry: Entry | None) -> AsyncIterator[str]:
    cursor, cues = Cursor(log), GrowingCues()
    news, quiet_s = asyncio.Event(), 0.0
    waiting = entry.waiting if entry is not None else set()
    waiting.add(news)
    try:
        yield VTT
        while True:
            news.clear()
            over = entry is None or entry.outcome is not None
            while (message := cursor.take()) is not None:
                cues.receive(message)
                await asyncio.sleep(0)  # a long transcript holds up nobody
            if entry is not None:
                await entry.recorder.on_disk(cursor.at)
                if entry.elsewhere:
                    return
            text = "".join("\n" + vtt_cue(cue) for cue in cues.take(math.inf if over else _heard_ms(entry)))
            quiet_s = 0.0 if text else quiet_s
            if not text and quiet_s >= BEAT_S:
                text, quiet_s = BEAT, 0.0
            if text:
                yield text
            if over:
                return
            quiet_s += await _wait(news)
    finally:
        waiting.discard(news)


def _heard_ms(entry: Entry | None) -> int:
    return ms(entry.live.received) if entry is not None and entry.live is not None else 0


async def _wait(news: asyncio.Event) -> float:
    """For news, `LOOK_S` at most; how long it was, in seconds."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(LOOK_S):
            await news.wait()
    except TimeoutError:
        pass
    return loop.time() - began
