"""POSTs to addresses that somebody configured: where they go, and where never."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from streaming.access.posting import PostError, post, public, target_of

OK = b"HTTP/1.1 204 No Content\r\n\r\n"


@asynccontextmanager
async def answering(
    answer: bytes | Callable[[asyncio.StreamWriter], Awaitable[None]], host: str = "127.0.0.1"
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that reads a request and answers; yields its port and what came."""
    got: list[bytes] = []
    serving: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.append(task)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        got.append(head + await reader.readexactly(length))
        with suppress(ConnectionError):
            if callable(answer):
                await answer(writer)
            else:
                writer.write(answer)
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(serve, host, 0)
    async with server:
        yield server.sockets[0].getsockname()[1], got
        await asyncio.gather(*serving)


async def sent(url: str, *, private: bool = True, deadline_s: float = 5.0) -> int:
    headers = {"X-Test": "yes"}
    return await post(target_of(url), b"{}", headers, allow_private=private, deadline_s=deadline_s)


async def test_the_request_is_whole_and_the_status_comes_back() -> None:
    async with answering(OK) as (port, got):
        assert await sent(f"http://127.0.0.1:{port}/a/b?c=d") == 204
    (request,) = got
    assert request.startswith(b"POST /a/b?c=d HTTP/1.1\r\n")
    assert f"host: 127.0.0.1:{port}\r\n".encode() in request.lower()
    assert b"x-test: yes\r\n" in request.lower()
    assert request.endswith(b"\r\n\r\n{}")


async def test_an_answer_that_does_not_end_is_not_kept() -> None:
    async def flood(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        for _ in range(64):
            writer.write(b"x: " + b"y" * 1021)
            await writer.drain()
        # What nobody reads is no answer either: who read all of it would wait for the rest.
        await asyncio.sleep(30)

    async with answering(flood) as (port, _):
        with pytest.raises(PostError, match="RemoteProtocolError: Receive buffer too long"):
            await sent(f"http://127.0.0.1:{port}/")


async def test_an_informational_answer_is_no_answer() -> None:
    async with answering(b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK) as (port, _):
        assert await sent(f"http://127.0.0.1:{port}/") == 204


async def test_a_redirect_is_not_followed() -> None:
    async with answering(OK) as (inner, reached):
        redirect = f"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{inner}/\r\nContent-Length: 0\r\n\r\n"
        async with answering(redirect.encode()) as (port, _):
            assert await sent(f"http://127.0.0.1:{port}/") == 302
        assert reached == []


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]"]
)
async def test_this_machine_is_refused_however_it_is_written(host: str) -> None:
    async with answering(OK) as (port, got):
        with pytest.raises(PostError, match=r"allow_private|resolved"):
            await sent(f"http://{host}:{port}/", private=False)
        assert got == []


async def test_a_name_is_resolved_once_and_what_was_checked_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name that is on the internet when it is checked, and here when it is connected to."""
    loop, asked, connected = asyncio.get_running_loop(), [], []
    answers = [["93.184.216.34", "10.0.0.1"], ["127.0.0.1"]]

    async def getaddrinfo(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        asked.append(host)
        return [(2, 1, 6, "", (address, port)) for address in answers.pop(0)]

    async def open_connection(host: str, port: int, **_: object) -> None:
        connected.append(host)
        raise ConnectionRefusedError

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(asyncio, "open_connection", open_connection)
    with pytest.raises(PostError, match="ConnectionRefused"):
        await sent("http://hooks.example/", private=False)
    assert (asked, connected) == (["hooks.example"], ["93.184.216.34"])


async def test_an_address_that_does_not_answer_is_not_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(OK) as (port, got):

        async def getaddrinfo(*_: object, **__: object) -> list[tuple[object, ...]]:
            return [(2, 1, 6, "", (address, port)) for address in ("127.0.0.2", "127.0.0.1")]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        assert await sent(f"http://hooks.example:{port}/") == 204
        assert b"host: hooks.example" in got[0].lower()


async def test_a_receiver_that_dawdles_meets_a_deadline() -> None:
    async def dawdle(writer: asyncio.StreamWriter) -> None:
        for byte in b"HTTP/1.1 200 OK\r\n" * 100:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.05)

    async with answering(dawdle) as (port, _):
        with pytest.raises(PostError, match=r"0\.2 s"):
            await sent(f"http://127.0.0.1:{port}/", deadline_s=0.2)


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000]
)
async def test_what_is_no_answer_is_told_as_such(answer: bytes) -> None:
    async with answering(answer) as (port, _):
        with pytest.raises(PostError):
            await sent(f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize(
    "address",
    [
        "10.1.2.3", "172.16.0.1", "192.168.1.1", "127.0.0.1", "169.254.169.254", "0.0.0.0", "100.64.0.1",
        "224.0.0.1", "255.255.255.255", "240.0.0.1", "198.18.0.1", "192.0.2.1", "::1", "::", "fe80::1%eth0",
        "fc00::1", "ff02::1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::1", "2001:db8::1",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
    ],
)  # fmt: skip
def test_what_is_not_on_the_internet(address: str) -> None:
    assert not public(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34"])
def test_what_is(address: str) -> None:
    assert public(address)


@pytest.mark.parametrize(
    "url",
    [
        "", "hooks.example", "ftp://hooks.example/", "http:///x", "http://", "https://u:p@hooks.example/",
        "https://hooks.example/#x", "http://hooks.example:0/", "http://hooks.example:99999/", "http://[::1/",
        "http://hooks.example/a b", "http://hooks.example/\r\nX: y", "file:///etc/passwd",
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_used_is_refused_with_the_remedy(url: str) -> None:
    with pytest.raises(ValueError, match="https://HOST"):
        target_of(url)


def test_the_parts_of_an_address() -> None:
    target = target_of("https://hooks.example/x?y=z")
    assert (target.secure, target.port, target.path, target.name) == (True, 443, "/x?y=z", "hooks.example")
    assert target_of("http://[2001:db8::1]:8080").name == "[2001:db8::1]:8080"
