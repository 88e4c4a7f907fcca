"""Requests that are passed through to another process, which may be gone, break off or talk nonsense."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from engine.fake import FakeRecognizer
from streaming.settings import LimitSettings
from streaming.sockets import relay
from streaming.sockets.relay import Relay
from tests.support.services import services_of
from tests.support.waiting import until

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Far:
    """Another process: what it answers, and whether anybody is connected."""

    def __init__(self) -> None:
        self.connected = 0
        self.address = ""


@asynccontextmanager
async def far(answer: Answer) -> AsyncIterator[Far]:
    there = Far()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there.connected += 1
        with suppress(ConnectionError):
            await answer(reader, writer)
        there.connected -= 1
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        there.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield there


class Asking:
    """One request, as a server has it."""

    def __init__(self, body: bytes = b"") -> None:
        self.sent: list[dict[str, Any]] = []
        self.left = asyncio.Event()
        self.stuck = False
        self._pieces = [body[at : at + 65_536] for at in range(0, len(body), 65_536)] or [b""]

    async def receive(self) -> dict[str, Any]:
        if self._pieces:
            piece = self._pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if self.stuck:
            await asyncio.Event().wait()
        self.sent.append(message)

    async def of(self, there: Far, **limits: Any) -> None:
        scope = {
            "type": "http", "method": "PUT", "path": "/x", "raw_path": b"/x", "query_string": b"",
            "headers": [(b"transfer-encoding", b"chunked")],
        }  # fmt: skip
        services = services_of(FakeRecognizer(), LimitSettings(**limits))
        try:
            await Relay(there.address, services)(scope, self.receive, self.send)
        finally:
            await services.dispatcher.close()

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def whole(self) -> bool:
        return not self.sent[-1].get("more_body", False)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200", b"SSH-2.0\r\n\r\n", b"HTTP/1.1 200 OK\r\nbroken\r\n\r\n"]
)
async def test_who_does_not_answer_is_asked_again_later(said: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)

    async with far(answer) as there:
        await (asking := Asking()).of(there)
    assert asking.status == 503
    assert (b"retry-after", b"1") in asking.sent[0]["headers"]


async def test_who_is_frozen_is_asked_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # as the kernel does for it

    monkeypatch.setattr(relay, "ANSWER_S", 0.05)
    async with far(answer) as there, asyncio.timeout(30):
        await (asking := Asking()).of(there)
        assert asking.status == 503
        await until(lambda: there.connected == 0)


@pytest.mark.parametrize("head", [b"content-length: 9", b"transfer-encoding: chunked"])
async def test_an_answer_that_breaks_off_is_seen_not_to_be_whole(head: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + (b"half" if b"9" in head else b"4\r\nhalf\r\n")
        )

    async with far(answer) as there:
        await (asking := Asking()).of(there)
    assert (asking.status, asking.body, asking.whole) == (200, b"half", False)


async def test_who_refuses_a_body_before_it_has_come_is_heard() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno")
        await writer.drain()
        writer.transport.abort()

    async with far(answer) as there:
        await (asking := Asking(bytes(1 << 24))).of(there)
    assert asking.status in (413, 503)
    assert asking.whole


async def _endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n")
    await reader.read()


async def test_who_leaves_is_not_answered_any_further() -> None:
    async with far(_endless) as there:
        working = asyncio.create_task((asking := Asking()).of(there))
        await until(lambda: asking.body)
        asking.left.set()
        await asyncio.wait_for(working, 30)
        await until(lambda: there.connected == 0)


async def test_who_takes_nothing_is_cut_off() -> None:
    async with far(_endless) as there:
        asking = Asking()
        asking.stuck = True
        await asyncio.wait_for(asking.of(there, slow_reader_s=0.05), 30)
        await until(lambda: there.connected == 0)
