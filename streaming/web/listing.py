"""The routes to what is kept: the list of sessions, transcripts of those that ended long ago, deletion."""

from __future__ import annotations

import re
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from streaming.denial import later
from streaming.errors import Deleted
from streaming.kept.log import Log
from streaming.kept.recordings import export, spans_ms
from streaming.kept.stored import Summary
from streaming.sessions.services import Services
from streaming.wire.errors import shown
from streaming.wire.messages import CLOCK_RATE

MOST = 200
"""Sessions on one page at most."""

_NUMBER = re.compile(r"[1-9][0-9]{0,2}")
_CURSOR = re.compile(r"([0-9]{1,15})\.([A-Za-z0-9_-]{1,128})")

NO_JOURNAL = "Sessions are not kept here: set journal.on = true.\n"
NO_AUDIO = "No audio of this session is kept: journal.audio = true keeps that of sessions from then on.\n"
NO_READER = "Audio cannot be read here: pip install 'seamscribe[files]'.\n"
MISSING = "seamscribe-missing-ms"
MOST_MISSING = 100
"""Holes that are told one by one."""

LIVES = "The session lives: DELETE with ?end=true ends it first, or wait until it has ended.\n"
LIVES_ON = "The session was told to end and has not yet: try again.\n"
NO_SESSION = "No such session: it never was, or it ended too long ago.\n"


async def page(request: Request, services: Services) -> Response:
    """Sessions, newest first: `?limit=1..200`, `?before=` the `next` of the page before."""
    if services.history is None:
        return PlainTextResponse(NO_JOURNAL, status_code=404)
    limit, before = request.query_params.get("limit", "50"), request.query_params.get("before", "")
    if not _NUMBER.fullmatch(limit) or int(limit) > MOST:
        return PlainTextResponse(
            f"limit: {shown(limit)} is no number of sessions: use 1 to {MOST}.\n", status_code=400
        )
    place = _CURSOR.fullmatch(before)
    if before and place is None:
        return PlainTextResponse(
            f"before: {shown(before)} is no `next` of a page: use that of the one before, or leave it out.\n",
            status_code=400,
        )
    cursor = (int(place.group(1)), place.group(2)) if place else None
    found = await services.history.page(int(limit), cursor)
    last = found[-1] if len(found) == int(limit) else None
    return JSONResponse(
        {
            "sessions": [_line(summary, services) for summary in found],
            "next": None if last is None else f"{last.created}.{last.id}",
        },
        headers={"cache-control": "no-store"},
    )


def _line(summary: Summary, services: Services) -> dict[str, Any]:
    entry = services.sessions.find(summary.id)
    if (entry is not None and entry.live is not None) or (summary.elsewhere and summary.ended is None):
        state = "live"
    else:
        state = "waiting" if summary.ended is None else "ended"
    return {
        "session": summary.id,
        "label": summary.label,
        "state": state,
        "started": _time(summary.created),
        "ended": None if summary.ended is None else _time(summary.ended),
        "audio_ms": summary.received * 1000 // CLOCK_RATE,
    }


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


async def log(id: str, services: Services) -> Log | None:
    """What a session said: a live one, one that ended lately, or one from the disk."""
    if (entry := services.sessions.find(id)) is not None:
        return entry.log
    return None if services.history is None else await services.history.log(id)


async def audio(request: Request, services: Services) -> Response:
    """What was kept of a session's audio, on its clock; what is missing is silence, and said in the header
    `seamscribe-missing-ms`."""
    id, found = request.path_params["id"], None
    said = await log(id, services)
    if said is None:
        return PlainTextResponse(NO_SESSION, status_code=404)
    received = said.receipt.samples if said.receipt is not None else 0  # of one that lives: so far
    try:
        found = await services.history.recording(id, received) if services.history is not None else None
    except ImportError:
        return PlainTextResponse(NO_READER, status_code=501)
    if found is None:
        return PlainTextResponse(NO_AUDIO, status_code=404)
    headers = {"cache-control": "no-store", MISSING: spans_ms(found.missing, MOST_MISSING)}
    if request.method == "HEAD":
        return Response(headers=headers, media_type="audio/flac")
    return StreamingResponse(export(found), media_type="audio/flac", headers=headers)


async def delete(request: Request, services: Services) -> Response:
    """Remove every trace of a session; one that lives is ended first where `?end=true` asks for it."""
    id = request.path_params["id"]
    async with services.history.still if services.history is not None else nullcontext():
        entry = services.sessions.find(id)
        if entry is not None and entry.live is not None:
            if request.query_params.get("end") != "true":
                return PlainTextResponse(LIVES, status_code=409)
            if not await services.sessions.end(entry, Deleted()):
                return PlainTextResponse(LIVES_ON, status_code=503, headers=later(1))
        services.sessions.remove(id)
        kept = services.history is not None and await services.history.delete(id)
    if entry is None and not kept:
        return PlainTextResponse(NO_SESSION, status_code=404)
    return Response(status_code=204)
