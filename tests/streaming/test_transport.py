"""What uvicorn's protocols do with clients that do not read, do not ask, or ask in a strange way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from starlette.websockets import WebSocket
from uvicorn.server import ServerState

from streaming.serve import server_for
from streaming.sockets.door import Door, HttpProtocol, http_protocol
from streaming.sockets.transport import Protocol, SocketChannel
from streaming.sockets.writer import ChannelClosed
from tests.support.virtual import run, settle
from tests.support.world import END, START, World, serving

App = Callable[[Any, Any, Any], Awaitable[None]]

UPGRADE = (
    "Host: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
)


class MemoryTransport(asyncio.Transport):
    """The server's end of a connection; `reads = False` is a client that takes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: Any = None
        self.written = b""
        self.reads = True
        self.closing = False
        self.lost = False
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0 if self.reads else len(self.written)

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True
        if self.reads:
            self._lose()

    def abort(self) -> None:
        self.aborted = self.closing = True
        self._lose()

    def _lose(self) -> None:
        if not self.lost:
            self.lost = True
            asyncio.get_running_loop().call_soon(lambda: self.protocol.connection_lost(None))

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class House:
    """A server's protocols without a server."""

    def __init__(
        self, app: App, most: int = 4, sessions: int = 0, spare: int = 0, asked: frozenset[str] = frozenset()
    ) -> None:
        self.sessions = sessions
        door = Door(most, 10.0, 5.0, lambda: self.sessions, spare, asked)
        self.config = uvicorn.Config(
            app, http=http_protocol(door), ws=Protocol, lifespan="off", log_config=None, ws_ping_interval=None
        )
        self.config.load()
        self.state = ServerState()

    def connect(self) -> MemoryTransport:
        transport = MemoryTransport()
        made: Any = self.config.http_protocol_class
        protocol: HttpProtocol = made(config=self.config, server_state=self.state, app_state={})
        transport.protocol = protocol
        protocol.connection_made(transport)
        return transport


async def silent(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


def frame(opcode: int, payload: bytes = b"", *, last: bool = True) -> bytes:
    return bytes([(0x80 if last else 0) | opcode, 0x80 | len(payload)]) + bytes(4) + payload


async def opened(house: House) -> MemoryTransport:
    transport = house.connect()
    transport.protocol.data_received(f"GET / HTTP/1.1\r\n{UPGRADE}\r\n".encode())
    await settle()
    assert transport.written.startswith(b"HTTP/1.1 101")
    transport.written = b""
    return transport


def test_a_client_that_does_not_read_gets_no_pongs() -> None:
    async def main() -> None:
        transport = await opened(House(silent))
        socket = transport.protocol
        socket.data_received(frame(9, b"one"))
        assert transport.written == b"\x8a\x03one"
        socket.pause_writing()
        for _ in range(1000):
            socket.data_received(frame(9, b"x" * 100))
        assert transport.written == b"\x8a\x03one"
        assert b"".join(socket.conn.data_to_send()) == b""
        socket.resume_writing()
        socket.data_received(frame(9, b"two"))
        assert transport.written == b"\x8a\x03one\x8a\x03two"
        transport.close()
        await settle()

    run(main())


def test_fragments_of_nothing_are_not_kept() -> None:
    got: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] != "websocket.disconnect":
            got.append(message.get("text") or message.get("bytes"))

    async def main() -> None:
        transport = await opened(House(app))
        socket = transport.protocol
        socket.data_received(frame(1, b"one,", last=False))
        for _ in range(1000):
            socket.data_received(frame(0, b"", last=False))
        assert len(socket.frames) <= 1
        socket.data_received(frame(0, b"two"))
        socket.data_received(frame(2, b"\0", last=False) + frame(0, b"\1") + frame(2, b"\2"))
        await settle()
        assert got == ["one,two", b"\0\1", b"\2"]
        transport.close()
        await settle()

    run(main())


def test_a_socket_is_read_on_until_a_second_of_audio_waits() -> None:
    turn = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await turn.wait()
        while (await receive())["type"] != "websocket.disconnect":
            pass

    async def main() -> None:
        transport = await opened(House(app))
        calls: list[str] = []
        transport.pause_reading = lambda: calls.append("pause")  # type: ignore[method-assign]
        transport.resume_reading = lambda: calls.append("resume")  # type: ignore[method-assign]
        for _ in range(127):  # however small, each counts 256 bytes
            transport.protocol.data_received(frame(2, b"x"))
        assert calls == []
        for _ in range(3):
            transport.protocol.data_received(frame(2, b"x" * 100))
        assert calls == ["pause"]
        turn.set()
        await settle()
        assert calls == ["pause", "resume"]
        for _ in range(200):
            transport.protocol.data_received(frame(2, b"x"))
            await settle()
        assert calls == ["pause", "resume"]
        transport.close()
        await settle()

    run(main())


@pytest.mark.parametrize("what", ["messages", "pings", "chunks"])
def test_a_read_full_of_tiny_things_is_taken_apart_while_others_have_their_turn(what: str) -> None:
    seen: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            if message["type"] == "websocket.connect":
                await send({"type": "websocket.accept"})
            elif message["type"] in ("websocket.disconnect", "http.disconnect"):
                return
            else:
                seen.append(len(message.get("bytes") or message.get("body", b"")))

    async def main() -> None:
        house = House(app)
        if what == "chunks":
            transport = house.connect()
            head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            transport.protocol.data_received(head)
            flood, count = b"1\r\nx\r\n" * 30_000, 30_000
        else:
            transport = await opened(house)
            flood, count = (frame(9) if what == "pings" else frame(2, b"x")) * 30_000, 30_000
        pace, looks = transport.protocol.transport, 0

        def clock() -> float:
            nonlocal looks
            looks += 1
            return looks  # each slice takes longer than a turn may

        pace.clock = clock
        transport.protocol.data_received(flood)
        turns = 0
        while pace._held:
            before = looks
            await asyncio.sleep(0)
            assert looks - before <= 2, "one slice a turn"
            turns += 1
        await settle(200)
        assert turns >= 40, "of 750 things or fewer each"
        if what == "pings":
            assert transport.written == b"\x8a\x00" * count
        else:
            assert sum(seen) == count, "all of it came"
        transport.close()
        await settle()

    run(main())


def test_what_came_before_the_connection_was_lost_is_heard_before_the_loss() -> None:
    got: list[Any] = []
    turn = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await turn.wait()
        while (message := await receive())["type"] != "websocket.disconnect":
            got.append(message["bytes"])
        got.append("gone")

    async def main() -> None:
        house = House(app)
        transport = await opened(house)
        sent = [bytes([i]) * 120 for i in range(250)] * 4
        transport.protocol.data_received(b"".join(frame(2, one) for one in sent))
        transport.abort()
        await settle()
        assert house.state.connections, "what waits is still to be looked at"
        turn.set()
        await settle(2000)
        assert got == [*sent, "gone"]
        assert not house.state.connections

    run(main())


def test_what_nobody_takes_any_more_does_not_keep_a_lost_connection() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await asyncio.sleep(5)

    async def main() -> None:
        house = House(app)
        transport = await opened(house)
        transport.protocol.data_received(frame(2, bytes(100)) * 1000)
        transport.abort()
        await settle()
        assert house.state.connections
        await asyncio.sleep(6)
        assert not house.state.connections

    run(main())


def test_closing_a_client_that_does_not_read_ends() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await receive()
        await send({"type": "websocket.close", "code": 1000})

    async def main() -> None:
        house = House(app)
        left, told = await opened(house), await opened(house)
        left.reads = told.reads = False
        left.protocol.data_received(frame(8, b"\x03\xe8"))
        told.protocol.data_received(frame(1, b"go"))
        await asyncio.sleep(60)
        assert left.aborted
        assert told.aborted
        assert not house.state.connections

    run(main())


@pytest.mark.parametrize(
    ("target", "headers", "status"),
    [
        ("/" + "x" * 9000, "", b"414"),
        ("/", "".join(f"X-{i}: y\r\n" for i in range(200)), b"431"),
        ("/", "X-Long: " + "y" * 9000 + "\r\n", b"431"),
    ],
)
def test_strange_handshakes_are_answered(target: str, headers: str, status: bytes) -> None:
    async def main() -> None:
        house = House(silent)
        transport = house.connect()
        transport.protocol.data_received(f"GET {target} HTTP/1.1\r\n{UPGRADE}{headers}\r\n".encode())
        await settle()
        assert transport.written.split()[1] == status
        assert transport.lost
        assert not house.state.connections

    run(main())


def test_a_handshake_that_the_websocket_parser_cannot_read_is_answered() -> None:
    async def main() -> None:
        house = House(silent)
        transport = MemoryTransport()
        socket = Protocol(house.config, house.state, {})
        transport.protocol = socket
        socket.connection_made(transport)
        socket.data_received(b"nonsense\r\n\r\n")
        assert transport.written.startswith(b"HTTP/1.1 400")
        head, _, body = transport.written.partition(b"\r\n\r\n")
        assert f"Content-Length: {len(body)}".encode() in head
        await settle()
        assert transport.lost

    run(main())


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: here\r\n", f"GET / HTTP/1.1\r\n{UPGRADE}".encode()]
)
def test_half_a_request_has_a_deadline(sent: bytes) -> None:
    async def main() -> None:
        house = House(hello)
        transport = house.connect()
        if sent:
            transport.protocol.data_received(sent)
        await asyncio.sleep(9)
        assert not transport.closing
        await asyncio.sleep(2)
        assert transport.written.startswith(b"HTTP/1.1 408")
        assert transport.lost
        assert not house.state.connections

    run(main())


def test_dripping_does_not_move_the_deadline() -> None:
    async def main() -> None:
        transport = House(hello).connect()
        for byte in b"GET / HTTP":
            transport.protocol.data_received(bytes([byte]))
            await asyncio.sleep(1.5)
            if transport.lost:
                break
        assert transport.written.startswith(b"HTTP/1.1 408")

    run(main())


def test_a_second_request_has_a_deadline_too() -> None:
    async def main() -> None:
        house = House(hello)
        transport = house.connect()
        transport.protocol.data_received(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        await asyncio.sleep(1)
        assert transport.written.endswith(b"hello")
        transport.protocol.data_received(b"GET / HT")
        await asyncio.sleep(11)
        assert b"HTTP/1.1 408" in transport.written
        assert transport.lost

    run(main())


def test_an_answer_that_nobody_takes_is_dropped() -> None:
    async def main() -> None:
        house = House(hello)
        stuck, slow = house.connect(), house.connect()
        stuck.reads = slow.reads = False
        for transport in (stuck, slow):
            transport.protocol.data_received(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        for _ in range(120):
            await asyncio.sleep(1)
            slow.written = slow.written[1:]  # a little is taken
            if not slow.written and not slow.lost:
                slow._lose()
        assert stuck.aborted
        assert not slow.aborted
        assert not house.state.connections

    run(main())


def test_an_open_websocket_has_no_deadline_at_the_door() -> None:
    async def main() -> None:
        transport = await opened(House(silent))
        await asyncio.sleep(3600)
        assert not transport.closing
        transport.close()
        await settle()

    run(main())


def test_one_connection_too_many_is_told() -> None:
    async def main() -> None:
        house = House(hello, most=2)
        first, second, third = (house.connect() for _ in range(3))
        third.protocol.data_received(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        assert third.written.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 5\r\n" in third.written.lower()
        await asyncio.sleep(1)
        assert (first.lost, second.lost, third.lost) == (False, False, True)
        house.sessions = 1  # one of them became a session
        fourth = house.connect()
        fourth.protocol.data_received(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        await settle()
        assert fourth.written.endswith(b"hello")
        await asyncio.sleep(30)
        assert not house.state.connections

    run(main())


def test_sessions_do_not_count_at_the_door() -> None:
    async def body(world: World) -> None:
        door = vars(server_for(world.services).config.http)["door"]
        assert (door.most, door.sessions()) == (300, 0)
        channel = world.client()
        channel.say(START)
        await settle()
        assert door.sessions() == 1
        channel.say(END)

    serving(body, max_sessions=300)


def test_garbage_behind_an_answered_request() -> None:
    async def main() -> None:
        house = House(hello)
        transport = house.connect()
        transport.protocol.data_received(
            b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        await settle()
        transport.protocol.data_received(b"no chunk\r\n")
        await settle()
        assert transport.lost

    run(main())


def test_garbage_behind_a_request_that_is_being_answered(caplog: pytest.LogCaptureFixture) -> None:
    """The break is answered; the application's own answer, a moment later, is no error."""

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "http.disconnect"
        await hello(scope, receive, send)

    async def main() -> None:
        transport = House(slow).connect()
        transport.protocol.data_received(
            b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        transport.protocol.data_received(b"no chunk\r\n")
        await settle()
        assert transport.written.startswith(b"HTTP/1.1 400")
        assert b"hello" not in transport.written

    run(main())
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(
    "last", [frame(8, b"\x03\xe8"), frame(3), b"\xff\xff"], ids=["close", "opcode", "bits"]
)
def test_what_is_said_to_a_client_that_has_just_gone_is_no_error(
    last: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[BaseException] = []

    async def talk(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await receive()  # and it is gone when we answer
        try:
            await send({"type": "websocket.send", "text": "hello"})
        except OSError as error:
            said.append(error)

    async def main() -> None:
        transport = await opened(House(talk))
        transport.protocol.data_received(frame(1, b"hi") + last)
        await settle()

    run(main())
    assert len(said) == 1
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_who_has_gone_may_be_told_again_and_again_and_is_heard_to_the_end() -> None:
    heard: list[str | bytes] = []
    left: list[bool] = []
    refused = 0

    async def talk(scope: Any, receive: Any, send: Any) -> None:
        nonlocal refused
        await (websocket := WebSocket(scope, receive, send)).accept()
        channel = SocketChannel(websocket)
        try:
            while True:
                heard.append(await channel.receive())
                try:
                    await channel.send("hello")
                except ChannelClosed:
                    refused += 1
        except ChannelClosed as closed:
            left.append(closed.for_good)
        for answer in (channel.send("hello"), channel.close(1000, "")):
            try:
                await answer
            except ChannelClosed:
                refused += 1

    async def main() -> None:
        transport = await opened(House(talk))
        transport.protocol.data_received(frame(1, b"hi") * 3 + frame(8, b"\x03\xe8"))
        await settle()

    run(main())
    assert (heard, refused, left) == (3 * ["hi"], 5, [True])


def test_a_refusal_by_the_application_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.http.response.start", "status": 400, "headers": []})
        await send({"type": "websocket.http.response.body", "body": b"no\n"})

    async def main() -> None:
        transport = House(refuse).connect()
        transport.protocol.data_received(f"GET / HTTP/1.1\r\n{UPGRADE}\r\n".encode())
        await settle()
        assert transport.written.startswith(b"HTTP/1.1 400")
        assert transport.written.endswith(b"no\n")

    with caplog.at_level(logging.INFO, "uvicorn.error"):
        run(main())
    assert [r.message for r in caplog.records if r.levelno > logging.INFO] == []
