"""What other machines answer us: an engine's server, a webhook's receiver."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, cast

import h11

from engine.contract import EngineError
from engine.sglang.http import HttpTransport
from engine.sglang.http1 import _LINE, Endpoint, _Connection
from engine.sglang.transport import Request
from streaming.access.posting import PostError, _exchange
from streaming.access.posting import Target as Address
from tests.support.virtual import VirtualLoop

from .audio import cut
from .runner import Target

_PART = (
    b'{"text":" Hello","output_ids":[1,2],"meta_info":{"id":"r","finish_reason":null,"prompt_tokens":3,'
    b'"cached_tokens":1,"output_token_logprobs":[[-0.5,1,null],[-1.5,2,null]]}}'
)
_LAST = _PART.replace(b"null,", b'{"type":"stop","matched":50257},', 1)
_EVENTS = b"data: " + _PART + b"\n\ndata: " + _LAST + b"\n\ndata: [DONE]\n\n"
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


def _chunked(body: bytes) -> bytes:
    half = len(body) // 2
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[:half], body[half:]))
    return _HEAD + b"transfer-encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n"


ANSWERS = (
    _chunked(_EVENTS),
    _HEAD + b"content-length: %d\r\n\r\n" % len(_LAST) + _LAST,
    b'HTTP/1.1 503 Busy\r\ncontent-length: 18\r\n\r\n{"error":"too many"}'[:-2],
    b'HTTP/1.1 200 OK\r\ncontent-length: 46\r\n\r\n{"error":{"message":"bad request","code":400}}',
)


class _Writer:
    """Takes everything."""

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...


def _reader(pieces: list[bytes], limit: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit)
    for piece in pieces:
        reader.feed_data(piece)
    reader.feed_eof()
    return reader


class _Canned(Endpoint):
    """A server whose answer to every connection is there already."""

    answer: tuple[bytes, ...] = ()

    async def _connect(self) -> _Connection:
        return _Connection(_reader(list(self.answer), _LINE), cast(Any, _Writer()))


_LOOP = VirtualLoop()


def _engine(case: bytes, choices: Random) -> object:
    """An engine's answer becomes parts, or an `EngineError`."""

    async def ask() -> int:
        transport = HttpTransport(["http://engine"])
        canned = _Canned("http://engine")
        canned.answer = tuple(cut(case, choices))
        transport._servers[0].endpoint = canned
        try:
            return len([part async for part in transport.generate(Request("r", b"", {}))])
        finally:
            await transport.close()

    return _LOOP.run_until_complete(ask())


def _receiver(case: bytes, choices: Random) -> object:
    """A webhook's receiver is asked for a status, and can say nothing else."""

    async def ask() -> int:
        reader = _reader(cut(case, choices), 1 << 16)
        return await _exchange(Address(False, "h", 80, "/"), reader, cast(Any, _Writer()), b"{}", {})

    status = _LOOP.run_until_complete(ask())
    assert 200 <= status <= 999
    return status


_RECEIVED = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n",
)
TARGETS = (
    Target("engine", ANSWERS, _engine, (EngineError,), 0.5, (b"data: ", b"\n\n", b"ffffffff\r\n", b"[DONE]")),
    Target("webhook answer", _RECEIVED, _receiver, (PostError, h11.ProtocolError), 0.5),
)
