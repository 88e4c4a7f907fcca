"""The routes to what is kept: the list of sessions, transcripts of those that ended long ago, deletion."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from .log import Log
from .services import Services
from .stored import Summary
from .wire.errors import shown
from .wire.messages import CLOCK_RATE

MOST = 200
"""Sessions on one page at most."""

_NUMBER = re.compile(r"[1-9][0-9]{0,2}")
_CURSOR = re.compile(r"([0-9]{1,15})\.([A-Za-z0-9_-]{1,128})")

NO_JOURNAL = "Sessions are not kept here: set journal.on = true.\n"
NO_SESSION = "No such session: it never was, or it ended too long ago.\n"


async def page(request: Request, services: Services) -> Response:
    """Sessions, newest first: `?limit=1..200`, `?before=` the `next` of the page before."""
    if services.history is None:
        return PlainTextResponse(NO_JOURNAL, status_code=404)
    limit, before = request.query_params.get("limit", "50"), request.query_params.get("before", "")
    if not _NUMBER.fullmatch(limit) or int(limit) > MOST:
        return PlainTextResponse(
            f"limit: {shown(limit)} is not a number from 1 to {MOST}.\n", status_code=400
        )
    place = _CURSOR.fullmatch(before)
    if before and place is None:
        return PlainTextResponse(f"before: {shown(before)} is no `next` of a page.\n", status_code=400)
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
    if entry is not None and entry.live is not None:
        state = "live"
    else:
        state = "waiting" if summary.ended is None else "ended"
    return {
        "session": summary.id,
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


async def delete(request: Request, services: Services) -> Response:
    """Remove every trace of a session that has ended."""
    id = request.path_params["id"]
    entry = services.sessions.find(id)
    if entry is not None and entry.live is not None:
        return PlainTextResponse("The session lives: delete it once it has ended.\n", status_code=409)
    services.sessions.remove(id)
    kept = services.history is not None and await services.history.delete(id)
    if entry is None and not kept:
        return PlainTextResponse(NO_SESSION, status_code=404)
    return Response(status_code=204)
