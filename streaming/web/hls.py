"""`GET /v1/sessions/{id}/captions.m3u8` and its segments: live captions for video players."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from streaming.denial import plainly, refused
from streaming.dialects.query import Query
from streaming.kept.log import Cursor, Said
from streaming.kept.transcripts import ms
from streaming.sessions.registry import Entry
from streaming.sessions.services import Services
from streaming.wire.errors import ProtocolError
from streaming.wire.hls import Segments

from .webvtt import MEDIA

MPEGTS = 1 << 33
NO_SESSION = "No such session lives, nor ended lately: its transcript.vtt may be kept.\n"
NO_SEGMENT = "No such segment is listed: read captions.m3u8 again.\n"


class Hls:
    """Of one server: what players ask for is made as they ask, of each session as far as it is."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._known: WeakKeyDictionary[Entry, tuple[Cursor, deque[Said], Segments]] = WeakKeyDictionary()
        """How far what a session says was looked at, what of it is not on the disk yet, and the rest."""

    async def playlist(self, request: Request) -> Response:
        """The segments that are whole; a player asks again and again."""
        return await self._answer(request, _playlist)

    async def segment(self, request: Request) -> Response:
        """One of them."""
        return await self._answer(request, _segment)

    async def _answer(self, request: Request, made: Callable[[Request, Segments, int], Response]) -> Response:
        """What is made of a session's segments and the video's time at which its audio begins."""
        if (segments := await self._segments(request)) is None:
            return PlainTextResponse(NO_SESSION, status_code=404)
        query = Query.parse(request.scope["query_string"].decode("latin-1"))
        try:
            mpegts = query.integer("mpegts", 0, 0, MPEGTS - 1)
        except ProtocolError as error:
            return refused(plainly, error)
        return made(request, segments, mpegts)

    async def _segments(self, request: Request) -> Segments | None:
        entry = self._services.sessions.find(request.path_params["id"])
        if entry is None:
            return None
        cursor, news, segments = self._known.setdefault(entry, (Cursor(entry.log), deque(), Segments()))
        over = entry.outcome is not None
        while (message := cursor.take()) is not None:
            news.append(message)
        known = cursor.at
        await entry.recorder.on_disk(known)
        if entry.elsewhere:
            return None  # who asks again is led to the process that has it
        while news and news[0].seq <= known:  # others who ask wait for some of it, too
            segments.receive(news.popleft())
        receipt = entry.log.receipt
        heard = entry.live.received if entry.live is not None else receipt.samples if receipt else 0
        segments.advance(ms(heard), over=over)
        return segments


def _playlist(request: Request, segments: Segments, mpegts: int) -> Response:
    # A player takes segments' addresses as they are written here.
    said = {"token": request.query_params.get("token"), "mpegts": mpegts or None}
    kept = urlencode({name: value for name, value in said.items() if value is not None})
    text = segments.playlist(f"?{kept}" if kept else "")
    headers = {"cache-control": "no-store"}
    return Response(text, headers=headers, media_type="application/vnd.apple.mpegurl")


def _segment(request: Request, segments: Segments, mpegts: int) -> Response:
    name = request.path_params["number"]
    number = int(name) if name.isascii() and name.isdigit() and len(name) < 9 else -1
    if not 0 <= number < segments.listed:
        return PlainTextResponse(NO_SEGMENT, status_code=404)
    headers = {"cache-control": "private, max-age=3600"}
    return Response(segments.segment(number, mpegts), headers=headers, media_type=MEDIA)
