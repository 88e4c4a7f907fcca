"""Keys on their way to a server: by argument or environment, to that server only, and told when they fail."""

from __future__ import annotations

import asyncio

import pytest

from clients.aio import Refused, connect
from tests.support.keys import READ, SPEAK, locked
from tests.support.server import server

pytestmark = pytest.mark.e2e


async def test_a_client_brings_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEAMSCRIBE_KEY", raising=False)
    async with server(services=locked()) as running:
        async with connect(running.stream, key=SPEAK) as stream:
            assert stream.ready.session
        for key, status in ((READ, "403"), ("wrong", "401")):
            with pytest.raises(Refused, match=status) as refused:
                async with connect(running.stream, key=key):
                    pass
            assert not refused.value.retryable
            assert key not in str(refused.value)
        with pytest.raises(Refused) as unknown:
            async with connect(running.stream):
                pass
        assert unknown.value.code == "unauthorized"
        monkeypatch.setenv("SEAMSCRIBE_KEY", SPEAK)
        async with connect(running.stream) as stream:
            assert stream.ready.session


async def test_a_redirect_gets_no_key() -> None:
    heard: list[bytes] = []

    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async def redirecting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        where = other.sockets[0].getsockname()[1]
        writer.write(
            f"HTTP/1.1 302 Found\r\nLocation: ws://127.0.0.1:{where}/\r\nContent-Length: 0\r\n\r\n".encode()
        )
        writer.close()

    other = await asyncio.start_server(elsewhere, "127.0.0.1", 0)
    first = await asyncio.start_server(redirecting, "127.0.0.1", 0)
    async with other, first:
        with pytest.raises(Refused, match="HTTP 302"):
            async with connect(f"ws://127.0.0.1:{first.sockets[0].getsockname()[1]}/", key=SPEAK):
                pass
    assert heard == []
