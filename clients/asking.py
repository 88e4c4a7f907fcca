"""Plain HTTP requests of the clients: to one server, with a deadline and a bound, and never led elsewhere."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from email.message import Message
from typing import IO, Any
from urllib.parse import quote, urlsplit, urlunsplit

from streaming.wire.messages import Ready
from streaming.wire.render import FORMATS

from .dialing import ClientError, Refused, Unreachable, on_loopback, stream_url

DEADLINE_S = 30.0
MOST_BYTES = 64 * 1024 * 1024
"""A transcript is smaller: a day of speech is some 20 MB in the wordiest format."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An address or a key may be a secret, and is for its own server alone."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        raise urllib.error.HTTPError(req.full_url, code, "redirected", Message(), fp)


def opener(url: str) -> urllib.request.OpenerDirector:
    """Follows no redirect; a proxy of the environment has no business on loopback."""
    proxies = [urllib.request.ProxyHandler({})] if on_loopback(url) else []
    return urllib.request.build_opener(_NoRedirect(), *proxies)


async def transcript(url: str, ready: Ready, format: str) -> str:
    """What the server has of a session, in one of `FORMATS`; `url` is the address its stream was opened at,
    `ready` what it answered. Raises `ClientError`."""
    parts = urlsplit(stream_url(url))
    scheme = {"ws": "http", "wss": "https"}[parts.scheme]
    path = f"/v1/sessions/{quote(ready.session, safe='')}/transcript.{FORMATS[format].ending}"
    return await asyncio.to_thread(_get, urlunsplit((scheme, parts.netloc, path, "", "")), ready.read_token)


def _get(address: str, token: str | None) -> str:
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with opener(address).open(request, timeout=DEADLINE_S) as answer:
            body: bytes = answer.read(MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise Refused(
                f"{address} answered with HTTP {error.code}", code=f"http_{error.code}", retryable=False
            ) from None
    except OSError as error:
        raise Unreachable(f"{address} does not answer: {error}", code="unreachable", retryable=True) from None
    if len(body) > MOST_BYTES:
        raise ClientError(f"{address} is over {MOST_BYTES} bytes", code="too_large", retryable=False)
    return body.decode("utf-8", "replace")
