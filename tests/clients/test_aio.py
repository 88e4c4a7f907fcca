"""The client's side of the protocol, against scripted servers."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import numpy as np
import pytest
from msgspec.structs import replace
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from clients import aio
from clients.aio import (
    ClientError,
    Deadlines,
    Disconnected,
    Refused,
    Stream,
    Unreachable,
    connect,
    stream_url,
)
from clients.captions import Captions
from clients.launch import free_port
from streaming.wire.codec import JSON_PROTOCOL, MSGPACK_PROTOCOL
from streaming.wire.messages import (
    Ack,
    Alive,
    Audio,
    AudioFormat,
    End,
    Ended,
    Error,
    Flush,
    Flushed,
    Hotwords,
    Name,
    Presence,
    ServerMessage,
    Start,
    Track,
)
from tests.support.server import server as our_server
from tests.support.sound import s16, speech

from .build import ready, receipt
from .scripted import Peer, scripted

pytestmark = pytest.mark.e2e

HURRY_SENDING = Deadlines(send_s=1)
HURRY = Deadlines(open_s=5, ready_s=0.05, send_s=0.2, message_s=0.05, close_s=1)


@pytest.mark.parametrize("protocol", [JSON_PROTOCOL, MSGPACK_PROTOCOL])
async def test_typed_messages_both_ways(protocol: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(ready(1))
        await peer.hear_all()
        await peer.say(Ack(2, 2), Flushed(3, "f", 2), Ended(4, receipt(2, 0)))

    async with scripted(script) as server:
        async with connect(server.url, Start(language="en"), protocol=protocol) as stream:
            assert stream.ready == ready(1)
            await stream.send(b"\1\2\3\4")
            await stream.flush("f")
            await stream.end()
            heard = [message async for message in stream]
        assert heard == [Ack(2, 2), Flushed(3, "f", 2), Ended(4, receipt(2, 0))]
        assert server.peers[0].heard == [Start(language="en"), Audio(b"\1\2\3\4"), Flush("f"), End()]


async def test_all_that_a_client_may_tell() -> None:
    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(ready(1))
        await peer.hear_all()
        await peer.say(Ended(2, receipt(0, 0)))

    async with scripted(script) as server, connect(server.url) as stream:
        await stream.alive()
        await stream.name(2, "Ann")
        await stream.presence("x", name="Bob", speaker=3)
        await stream.presence("x", present=False)
        await stream.expect(["Ada", "Grace"])
        await stream.end()
        assert len([message async for message in stream]) == 1
    assert server.peers[0].heard[1:] == [
        Alive(),
        Name(2, "Ann"),
        Presence("x", name="Bob", speaker=3),
        Presence("x", present=False),
        Hotwords(("Ada", "Grace")),
        End(),
    ]


async def test_what_a_client_tells_is_told_to_all() -> None:
    """Against our server, with the scripted engine."""
    start = Start(audio=AudioFormat(channels=2), tracks=(Track("Ann"), Track()))
    captions = Captions()
    async with (
        our_server() as running,
        connect(running.http(""), start) as stream,
        asyncio.TaskGroup() as tasks,
    ):

        async def speak() -> None:
            await stream.send(s16(np.repeat(speech("xx.."), 2)))
            await stream.name(2, "Bob")
            await stream.presence("x", name="Carl")
            await stream.expect(["Ada"])
            await stream.alive()
            await stream.end()

        tasks.create_task(speak())
        async for message in stream:
            captions.receive(message)
    assert captions.faults == []
    assert captions.error is None
    assert captions.names[2] == "Bob"
    assert (captions.participants["x"].name, captions.participants["x"].present) == ("Carl", True)


async def test_what_was_told_and_lost_is_told_again() -> None:
    going_on = replace(ready(1), token="secret", resume_ms=60_000)

    async def script(peer: Peer) -> None:
        if isinstance(await peer.hear(), Start):
            await peer.say(going_on)
            while not isinstance(await peer.hear(), Name):
                pass
            peer.socket.transport.abort()
        else:
            await peer.say(replace(going_on, resumed=True, next_sample=1))
            await peer.hear_all()
            await peer.say(Ended(2, receipt(1, 0)))

    async with scripted(script) as server:
        async with connect(server.url) as stream, asyncio.TaskGroup() as tasks:

            async def speak() -> None:
                await stream.send(b"\1\2")
                await stream.name(2, "Ann")
                await stream.end()

            tasks.create_task(speak())
            assert isinstance([message async for message in stream][-1], Ended)
        assert stream.resumes == 1
    assert server.peers[1].heard[1:] == [Name(2, "Ann"), End()]


async def test_a_server_that_pauses_reading_is_not_given_up() -> None:
    """Its pongs wait behind the audio that it has not read."""

    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(ready(1))
        peer.socket.transport.pause_reading()
        await asyncio.sleep(0.3)
        peer.socket.transport.resume_reading()
        await peer.hear_all()
        await peer.say(Ended(2, receipt(0, 0)))

    async with (
        scripted(script) as server,
        connect(server.url, deadlines=Deadlines(ping_s=0.02)) as stream,
    ):
        await stream.end()
        assert [type(message) async for message in stream] == [Ended]


async def test_a_server_that_died_may_want_again_what_it_had() -> None:
    """The new connection's `Ready` says so: what it acknowledges less of is no breach."""
    first = replace(ready(1), token="t", resume_ms=9000)

    async def script(peer: Peer) -> None:
        await peer.hear()
        if len(server.peers) == 1:
            await peer.say(first, Ack(1, 9000, 1000))
            await peer.hear()
            peer.socket.transport.abort()
            return
        await peer.say(replace(first, resumed=True, next_sample=1000), Ack(1, 2000, 1000))
        await peer.hear_all()
        await peer.say(Ended(2, receipt(9000, 0)))
        await peer.socket.close()

    captions = Captions()
    async with scripted(script) as server, connect(server.url) as stream:
        captions.receive(stream.ready)
        await stream.send(bytes(18_000))
        async for message in stream:
            captions.receive(message)
            if isinstance(message, Ack) and message.sample == 2000:
                await stream.end()
        assert stream.resumes == 1
    assert captions.faults == []


async def test_a_disk_that_stays_full_stops_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the server has is kept no longer than there is room, though it would not outlive the server."""
    monkeypatch.setattr(aio, "KEPT_BYTES", 4000)

    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(ready(1))
        while len(peer.audio) < 20_000:
            await peer.hear()
            await peer.say(Ack(1, len(peer.audio) // 2, 0))
        await peer.hear_all()
        await peer.say(Ended(2, receipt(10_000, 0)))

    async with scripted(script) as server, connect(server.url, deadlines=HURRY_SENDING) as stream:

        async def speak() -> None:
            for _ in range(20):
                await stream.send(bytes(1000))
            await stream.end()

        speaking = asyncio.create_task(speak())
        assert isinstance([message async for message in stream][-1], Ended)
        await speaking
    assert server.peers[0].audio == bytes(20_000)


async def test_nothing_comes_after_the_last_message() -> None:
    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(ready(1), Error(2, "overloaded", "come back", retry_after_ms=500))

    async with scripted(script) as server, connect(server.url) as stream:
        assert [type(message) async for message in stream] == [Error]
        assert [message async for message in stream] == []


async def test_an_error_that_follows_the_receipt_is_not_missed() -> None:
    last: list[ServerMessage] = [
        Ended(2, receipt(0, 0)),
        Error(3, "restarting", "the server shuts down", retry_after_ms=0),
    ]

    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(ready(1), *last)
        await peer.socket.close(1012, "restarting")

    async with scripted(script) as server, connect(server.url) as stream:
        assert [message async for message in stream] == last
        assert [message async for message in stream] == []


@pytest.mark.parametrize("close", [1006, 1011, 1012])
async def test_a_receipt_does_not_hide_that_the_stream_was_cut(close: int) -> None:
    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(ready(1), Ended(2, receipt(0, 0)))
        if close == 1006:
            peer.socket.transport.close()
        else:
            await peer.socket.close(close, "because")

    async with scripted(script) as server, connect(server.url) as stream:
        assert isinstance(await anext(stream), Ended)
        with pytest.raises(Disconnected, match=str(close)):
            await anext(stream)


@pytest.mark.parametrize("protocol", [JSON_PROTOCOL, MSGPACK_PROTOCOL])
async def test_a_big_buffer_goes_out_in_packets_that_the_server_takes(protocol: str) -> None:
    data = bytes(range(256)) * (2_000_000 // 256)
    limit = ready().limits.max_packet_bytes
    frames: list[int] = []

    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(ready(1))
        while sum(frames) < len(data):
            frame = await peer.socket.recv()
            message = peer.codec.decode(frame)
            assert isinstance(message, Audio)
            peer.heard.append(message)
            frames.append(len(message.data))
            assert len(frame) <= limit
        await peer.say(Ended(2, receipt(0, 0)))

    async with scripted(script) as server:
        async with connect(server.url, protocol=protocol) as stream:
            await stream.send(data)
            assert [type(message) async for message in stream] == [Ended]
        assert server.peers[0].audio == data
    assert len(frames) == 2


async def test_nobody_listens() -> None:
    with pytest.raises(Unreachable) as caught:
        async with connect(f"http://127.0.0.1:{free_port()}"):
            pass
    assert caught.value.retryable


@pytest.mark.parametrize("url", ["ftp://127.0.0.1:9", "http://", "", "http://h:99999", "http://[::1"])
async def test_no_address_at_all(url: str) -> None:
    with pytest.raises(ClientError, match="use http://HOST:PORT") as caught:
        async with connect(url):
            pass
    assert not caught.value.retryable


@pytest.mark.parametrize(("retry_after_ms", "retryable"), [(500, True), (0, False)])
async def test_an_error_instead_of_ready_is_a_refusal(retry_after_ms: int, retryable: bool) -> None:
    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(Error(1, "no_room", "the server is full", retry_after_ms=retry_after_ms))

    async with scripted(script) as server:
        with pytest.raises(Refused, match="full") as caught:
            async with connect(server.url):
                pass
        assert caught.value.code == "no_room"
        assert caught.value.retryable is retryable


@pytest.mark.parametrize(("status", "retryable"), [(401, False), (503, True)])
async def test_a_refusal_by_http(status: int, retryable: bool) -> None:
    def refuse(connection: ServerConnection, request: Request) -> Response:
        return connection.respond(HTTPStatus(status), "no\n")

    async def never(connection: ServerConnection) -> None:
        raise AssertionError

    async with serve(never, "127.0.0.1", 0, process_request=refuse) as server:
        host, port = next(iter(server.sockets)).getsockname()[:2]
        with pytest.raises(Refused, match=str(status)) as caught:
            async with connect(f"http://{host}:{port}"):
                pass
    assert caught.value.retryable is retryable


@pytest.mark.parametrize(("close", "retryable"), [(1012, True), (1013, True), (4400, False), (1009, False)])
async def test_a_connection_that_ends_early_tells_whether_to_come_back(close: int, retryable: bool) -> None:
    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(ready(1))
        await peer.socket.close(close, "because")

    async with scripted(script) as server, connect(server.url) as stream:
        with pytest.raises(Disconnected, match=f"{close}: because") as caught:
            await anext(stream)
    assert caught.value.retryable is retryable


async def test_a_silent_server_meets_a_deadline() -> None:
    async def mute(peer: Peer) -> None:
        await peer.socket.wait_closed()

    async def mute_after_ready(peer: Peer) -> None:
        await peer.say(ready(1))
        await peer.socket.wait_closed()

    async with scripted(mute) as server:
        with pytest.raises(Disconnected, match="said nothing"):
            async with connect(server.url, deadlines=HURRY):
                pass
    async with scripted(mute_after_ready) as server, connect(server.url, deadlines=HURRY) as stream:
        with pytest.raises(Disconnected, match="said nothing"):
            await anext(stream)


async def test_a_server_that_stops_reading_meets_a_deadline() -> None:
    seen = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(ready(1))
        peer.socket.transport.pause_reading()
        await seen.wait()
        peer.socket.transport.abort()

    async def send_without_end(stream: Stream) -> None:
        while True:
            await stream.send(bytes(1 << 20))

    async with scripted(script) as server, connect(server.url, deadlines=HURRY) as stream:
        with pytest.raises(Disconnected, match="read nothing"):
            await send_without_end(stream)
        seen.set()


async def test_garbage_from_the_server_is_its_fault() -> None:
    async def script(peer: Peer) -> None:
        await peer.say(ready(1))
        await peer.socket.send('{"type": "hello"}')

    async with scripted(script) as server, connect(server.url) as stream:
        with pytest.raises(Disconnected, match="broke the protocol"):
            await anext(stream)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("http://h:1", "ws://h:1/v1/stream"),
        ("https://h/", "wss://h/v1/stream"),
        ("h:1", "ws://h:1/v1/stream"),
        ("ws://h:1/other?x=1", "ws://h:1/other?x=1"),
    ],
)
def test_a_base_url_is_enough(given: str, wanted: str) -> None:
    assert stream_url(given) == wanted
