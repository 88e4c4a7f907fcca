"""SGLang over HTTP: one or many servers, streaming, abort by id, an even spread.

A request goes to the server with the fewest running, which may be a router before others; one that cannot be
reached is left alone for a while. Recordings go to servers of their own where there are any: an engine may do
nothing else while it reads one. A request is sent again only where that is safe: it is a pure function of
its audio and prompt, so wherever no part of an answer was seen yet.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import msgspec

from engine.contract import OVERLOADED, UNREACHABLE, EngineError

from .forms import Call, Form, Sglang
from .http1 import Endpoint, HttpError
from .payload import RATE
from .router import Aborts, serves
from .transport import STALLED, Part, Request

_DONE = b"[DONE]"
_EVENT = 8 << 20
"""Most bytes without the end of an event, beside all that was asked, which some servers send back, audio and
all; the longest output with log-probabilities is a few megabytes."""
_MESSAGE = 400
"""Characters of a server's error text that are passed on."""


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Seconds. `stall_s` is how long a server may say nothing while it works on a request, and so much more
    for each second of its audio, which has to be read first."""

    connect_s: float = 5.0
    stall_s: float = 20.0
    stall_per_audio_s: float = 0.02
    abort_s: float = 2.0
    rest_s: float = 1.0
    """First pause of a server that failed; doubled up to `most_rest_s`."""
    most_rest_s: float = 30.0


@dataclass(slots=True, eq=False)
class _Server:
    endpoint: Endpoint
    aborts: Aborts
    running: int = 0
    resting_until: float = 0.0
    rest_s: float = field(default=0.0)


class HttpTransport:
    """A `Transport` over `urls`; belongs to one event loop."""

    def __init__(
        self,
        urls: Sequence[str],
        settings: HttpSettings | None = None,
        *,
        key: str | None = None,
        form: Form | None = None,
        recordings: Sequence[str] = (),
    ) -> None:
        """`form` is how its servers are spoken to, where that is not SGLang's own way; `recordings` are those
        that take recordings, and nothing else, instead of `urls`."""
        if not urls:
            raise ValueError("at least one server is needed")
        self._settings = settings or HttpSettings()
        self._form = form or Sglang()
        self._servers = self._opened(urls, key)
        self._recordings = self._opened(recordings, key)
        self._owner: dict[str, _Server] = {}
        self._chores: set[asyncio.Task[None]] = set()
        self._closed = False

    async def generate(self, request: Request) -> AsyncGenerator[Part, None]:
        call = self._form.call(request)
        servers = (request.recording and self._recordings) or self._servers
        tried: list[_Server] = []
        taken = False
        while True:
            server = self._pick(servers, tried)
            tried.append(server)
            begun = False
            try:
                async with aclosing(self._attempt(server, request, call)) as parts:
                    async for part in parts:
                        begun = True
                        yield part
                return
            except HttpError as error:
                self._rest(server)
                taken = taken or error.sent
                if begun or len(tried) > len(servers):
                    cause = "connection" if taken else UNREACHABLE
                    raise EngineError(cause, str(error), retryable=True) from error

    async def abort(self, rid: str) -> None:
        server = self._owner.get(rid)
        if server is not None and self._form.aborts:
            await self._abort_at(server, rid)

    async def healthy(self) -> bool:
        """Whether somebody who speaks would be served."""
        answers = await asyncio.gather(*(self._health(server) for server in self._servers))
        return any(answers)

    async def close(self) -> None:
        self._closed = True
        for chore in list(self._chores):
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        for server in self._servers + self._recordings:
            server.aborts.close()
            server.endpoint.close()

    async def _attempt(self, server: _Server, request: Request, call: Call) -> AsyncGenerator[Part, None]:
        server.running += 1
        self._owner[request.rid] = server
        done = False
        try:
            read = call.reader()
            async with aclosing(self._messages(server, call, self._patience(request))) as messages:
                async for message in messages:
                    part = read(message)
                    done = part.finish is not None
                    yield part
                    if done:
                        break
            server.rest_s = 0.0
        finally:
            server.running -= 1
            self._owner.pop(request.rid, None)
            if not done and not self._closed and self._form.aborts:
                # Closing the connection is not enough: the server looks for that every few seconds only.
                chore = asyncio.create_task(self._abort_at(server, request.rid))
                self._chores.add(chore)
                chore.add_done_callback(self._chores.discard)

    def _patience(self, request: Request) -> float:
        """How long its server may say nothing, seconds."""
        return self._settings.stall_s + self._settings.stall_per_audio_s * len(request.pcm) / (2 * RATE)

    async def _messages(
        self, server: _Server, call: Call, stall_s: float
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The JSON messages of one answer, streamed or not."""
        pending = b""
        exchange = server.endpoint.exchange("POST", call.path, call.body, call.media)
        async with aclosing(exchange):
            while True:
                try:
                    async with asyncio.timeout(stall_s):
                        status, piece = await anext(exchange)
                except StopAsyncIteration:
                    break
                except TimeoutError:
                    raise EngineError(
                        STALLED, f"the engine said nothing for {stall_s:g} s", retryable=True
                    ) from None
                pending += piece
                if status != 200:
                    continue
                *events, pending = pending.split(b"\n\n")
                for event in events:
                    if event.startswith(b"data: ") and event[6:] != _DONE:
                        yield _decoded(event[6:])
                if len(pending) > _EVENT + len(call.body):
                    raise EngineError("garbage", "the engine's answer does not end", retryable=True)
            if status != 200:
                raise _refusal(status, pending)
            if pending.strip():
                yield _decoded(pending)

    async def _abort_at(self, server: _Server, rid: str) -> None:
        with contextlib.suppress(HttpError, TimeoutError):
            async with asyncio.timeout(self._settings.abort_s):
                await server.aborts.abort(rid)

    async def _health(self, server: _Server) -> bool:
        try:
            async with asyncio.timeout(self._settings.connect_s):
                return await serves(server.endpoint)
        except (HttpError, TimeoutError):
            return False

    def _opened(self, urls: Sequence[str], key: str | None) -> list[_Server]:
        endpoints = [Endpoint(url, key=key, connect_s=self._settings.connect_s) for url in urls]
        return [_Server(endpoint, Aborts(endpoint, key)) for endpoint in endpoints]

    @staticmethod
    def _pick(servers: Sequence[_Server], tried: Sequence[_Server]) -> _Server:
        """The least busy server that is not resting; if all are, the one whose rest ends first."""
        now = asyncio.get_running_loop().time()
        fresh = [server for server in servers if server not in tried] or servers
        return min(fresh, key=lambda s: (max(s.resting_until - now, 0.0), s.running))

    def _rest(self, server: _Server) -> None:
        settings = self._settings
        server.rest_s = min(server.rest_s * 2 or settings.rest_s, settings.most_rest_s)
        server.resting_until = asyncio.get_running_loop().time() + server.rest_s


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        message = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise EngineError("garbage", f"the engine's answer is not JSON: {error}", retryable=True) from error
    if "error" in message and "meta_info" not in message:
        raise _refusal(_code(message["error"]), data)
    return message


def _code(error: object) -> int:
    """The status that an error inside a stream carries; 500 where it carries none."""
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) else 500


def _refusal(status: int, body: bytes) -> EngineError:
    """An error answer as ours: 4xx are our fault and final, except "too many" and "too early"."""
    text = body.decode("utf-8", "replace")[:_MESSAGE]
    if status in (429, 503):
        return EngineError(OVERLOADED, f"the engine refused the request ({status}): {text}", retryable=True)
    if 400 <= status < 500:
        return EngineError("request", f"the engine refused the request ({status}): {text}", retryable=False)
    return EngineError("engine", f"the engine failed ({status}): {text}", retryable=True)
