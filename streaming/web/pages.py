"""The pages: files of `clients/web` as they are, held in memory, with headers of their own.

They are public and hold nothing of anybody's; what they ask for is guarded where it is asked for.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

PAGES = {"/": "index.html", "/overlay": "overlay.html", "/sessions": "sessions.html"}
"""Which file answers where; all others are under `/web/`."""

PATHS = re.compile(r"/(?:overlay|sessions|web/[^/]*)?")

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""Nothing but our own files runs or styles a page, and nobody but us is asked."""

HEADERS = {
    # Modules have no version in their names, so each is asked after; who has it is told so in a few bytes.
    "cache-control": "no-cache",
    "content-security-policy": POLICY,
    "permissions-policy": "microphone=(self), display-capture=(self), camera=(), geolocation=()",
}


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    media: str
    tag: str


@cache
def _files() -> dict[str, _File]:
    """Every file of the folder that has a media type, by name."""
    found = {}
    for file in files("clients").joinpath("web").iterdir():
        media = _TYPES.get(file.name.rpartition(".")[2])
        if media is not None:
            body = file.read_bytes()
            found[file.name] = _File(body, media, f'"{hashlib.sha256(body).hexdigest()[:20]}"')
    return found


def _answer(name: str, request: Request) -> Response:
    file = _files().get(name)
    if file is None:
        return PlainTextResponse("No such file: the pages are /, /overlay and /sessions.\n", status_code=404)
    headers = {**HEADERS, "etag": file.tag}
    if file.tag in (tag.strip() for tag in request.headers.get("if-none-match", "").split(",")):
        return Response(status_code=304, headers=headers)
    return Response(file.body, media_type=file.media, headers=headers)


def _page(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def page(request: Request) -> Response:
        return _answer(name, request)

    return page


async def _module(request: Request) -> Response:
    return _answer(request.path_params["name"], request)


def routes() -> list[Route]:
    """What answers for the pages."""
    return [
        *(Route(path, _page(name)) for path, name in PAGES.items()),
        Route("/web/{name}", _module),
    ]
