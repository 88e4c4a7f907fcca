"""Whoever asks for a session that another living process has is connected through to it. So each session is
heard and told in one place, whichever process its client or readers come to.

What is passed on carries `HOP`, and is not passed on again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

import h11
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from streaming.background import first_of
from streaming.errors import InternalFault, Restarting, SlowReader
from streaming.sessions.services import Services
from streaming.wire.errors import CloseCode

from .patience import patient
from .transport import SocketChannel
from .writer import CLOSE_S, Channel, ChannelClosed

logger = logging.getLogger("seamscribe")

HOP = "seamscribe-hop"
HOPPED = (HOP.encode(), b"1")
REACH_S = 3.0
"""So long another process may take to be reached, and to say yes."""

ANSWER_S = 10.0
"""So long until its answer begins: a frozen one is connected to, and is known for dead only by and by."""

BUSY_S = 300.0
"""So long another process may take no audio, for its engine is behind: its own clients wait for it, too. One
that is dead is known by its silence, to the client as well."""

QUIET_S = 60.0
"""And so long between two pieces of an answer."""

MOST = 1 << 24
"""Bytes of one message of another process."""

_OWN = frozenset(b"host origin connection upgrade keep-alive te trailer proxy-authorization expect".split())
"""Headers that are about one connection, or were judged already."""

GONE = "The process that has this session cannot be reached: try again.\n"


class Unreachable(Exception):
    """The other process does not answer."""


def hopped(scope: Scope) -> bool:
    """Whether another process passes this on."""
    return any(name == HOPPED[0] for name, _ in scope["headers"])


def _passed(scope: Scope) -> list[tuple[bytes, bytes]]:
    return [(k, v) for k, v in scope["headers"] if k not in _OWN and not k.startswith(b"sec-websocket-")]


def _target(scope: Scope) -> str:
    path: str = scope["raw_path"].decode("latin-1") if scope.get("raw_path") else scope["path"]
    query: str = scope["query_string"].decode("latin-1")
    return f"{path.partition('?')[0]}?{query}" if query else path.partition("?")[0]


# -- sockets ---------------------------------------------------------------------------------------------


class Through:
    """A connection to another process, and back; what a client's connection runs in place of a session."""

    def __init__(self, channel: Channel, far: ClientConnection, send_s: float) -> None:
        """The client may take `send_s` to take a message."""
        self._channel = channel
        self._far = far
        self._send_s = send_s
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """This process drains: the client is to come back to another; returns at once."""
        self._stopped.set()

    async def run(self) -> None:
        """Until either side closes; raises nothing but cancellation."""
        try:
            await first_of(self._there(), self._back(), self._stopped.wait())
            if self._stopped.is_set():
                await self._close(CloseCode.RESTART, Restarting().code)
        except SlowReader:
            pass  # it is cut off
        except Exception:
            logger.exception("a connection to another process failed")
            await self._close(CloseCode.FAULT, InternalFault().code)
        finally:
            self._far.transport.abort()

    async def _there(self) -> None:
        try:
            while True:
                data = await self._channel.receive()
                async with asyncio.timeout(BUSY_S):
                    await self._far.send(data)
        except ChannelClosed as closed:
            if closed.for_good:  # else the session waits for its client
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._far.close(), CLOSE_S)
        except (ConnectionClosed, TimeoutError):
            await self._close(CloseCode.RESTART, Restarting().code)

    async def _back(self) -> None:
        try:
            while True:
                data = await self._far.recv()
                async with asyncio.timeout(self._send_s):
                    await self._channel.send(data)
        except ConnectionClosed as closed:
            told = closed.rcvd
            await self._close(told.code if told else CloseCode.RESTART, told.reason if told else "restarting")
        except TimeoutError:
            self._channel.abort()
            raise SlowReader(self._send_s) from None
        except ChannelClosed:
            pass

    async def _close(self, code: int, reason: str) -> None:
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._channel.close(code, reason)
        except TimeoutError:
            self._channel.abort()
        except ChannelClosed:
            pass


async def dial(
    address: str,
    target: str,
    subprotocols: Sequence[str] = (),
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> ClientConnection:
    """A socket of another process; raises `Unreachable`, or `InvalidStatus` where it says no."""
    passed = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
    try:
        return await connect(
            f"ws{address.removeprefix('http')}{target}",
            subprotocols=[Subprotocol(one) for one in subprotocols] or None,
            additional_headers=[*passed, (HOP, "1")],
            user_agent_header=None,
            open_timeout=REACH_S,
            compression=None,
            ping_interval=None,  # both ends ask their other sides
            max_size=MOST,
            proxy=None,
        )
    except InvalidStatus:
        raise
    except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed) as error:
        raise Unreachable(f"{address}: {type(error).__name__}: {error}") from None


# -- requests --------------------------------------------------------------------------------------------


class Relay:
    """An ASGI application: the one at `address`, another process."""

    def __init__(self, address: str, services: Services) -> None:
        self._address = address
        self._sessions = services.sessions
        self._send_s = services.limits.slow_reader_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["type"] == "websocket":
                await self._socket(scope, receive, send)
            else:
                await self._request(scope, receive, send)
        except Unreachable:
            await no_answer(scope, receive, send)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        websocket = WebSocket(scope, receive, send)
        offered = scope.get("subprotocols", [])
        try:
            far = await dial(self._address, _target(scope), offered, _passed(scope))
        except InvalidStatus as no:
            kind = no.response.headers.get("content-type", "text/plain")
            headers = {k: v for k, v in no.response.headers.raw_items() if k.lower() == "retry-after"}
            said = PlainTextResponse(
                no.response.body or b"", no.response.status_code, headers, media_type=kind
            )
            await websocket.send_denial_response(said)
            return
        await websocket.accept(far.subprotocol)
        through = Through(SocketChannel(websocket), far, self._send_s)
        try:
            self._sessions.join(through)
        except Restarting:
            through.stop()
        try:
            with self._sessions.seat():
                await through.run()
        finally:
            self._sessions.leave(through)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        host, _, port = self._address.removeprefix("http://").rpartition(":")
        try:
            async with asyncio.timeout(REACH_S):
                reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"{self._address}: {error}") from None
        exchange = _Exchange(self._address, reader, writer)
        try:
            await exchange.ask(scope, receive)
            await first_of(exchange.answer(patient(send, self._send_s)), _gone(receive))
        except TimeoutError:
            pass  # it takes nothing: its connection is cut
        finally:
            writer.transport.abort()


class _Exchange:
    """One request to another process, over a connection of its own."""

    def __init__(self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._address, self._reader, self._writer = address, reader, writer
        self._line = h11.Connection(h11.CLIENT)

    async def ask(self, scope: Scope, receive: Receive) -> None:
        """Pass the request on, as far as it is taken; raises `Unreachable`."""
        line, writer = self._line, self._writer
        host = self._address.removeprefix("http://").encode()
        headers = [(b"host", host), *_passed(scope), HOPPED, (b"connection", b"close")]
        writer.write(line.send(h11.Request(method=scope["method"], target=_target(scope), headers=headers)))
        more = True
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Unreachable("nobody asks any more")
                more = message.get("more_body", False)
                if body := message.get("body", b""):
                    writer.write(line.send(h11.Data(body)) or b"")
                await writer.drain()
            writer.write(line.send(h11.EndOfMessage()) or b"")
        except OSError:
            pass  # it may have said why

    async def answer(self, send: Send) -> None:
        """Pass the answer back. Raises `Unreachable` before it has begun; afterwards it breaks off, so that
        whoever reads it sees that it is not whole. Raises what `send` raises."""
        begun = False
        while True:
            try:
                event = await self._next(QUIET_S if begun else ANSWER_S)
            except (OSError, TimeoutError, h11.RemoteProtocolError) as error:
                if not begun:
                    raise Unreachable(f"{self._address}: {error}") from None
                logger.warning("an answer of another process breaks off: %(error)s", {"error": error})
                return
            if isinstance(event, h11.Response):
                begun = True
                kept = [(k, v) for k, v in event.headers if k not in (b"connection", b"transfer-encoding")]
                await send({"type": "http.response.start", "status": event.status_code, "headers": kept})
            elif isinstance(event, h11.Data):
                await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
            elif isinstance(event, h11.EndOfMessage):
                await send({"type": "http.response.body", "body": b""})
                return

    async def _next(self, patience_s: float) -> object:
        while (event := self._line.next_event()) is h11.NEED_DATA:
            async with asyncio.timeout(patience_s):
                self._line.receive_data(await self._reader.read(65_536))
        return event


async def _gone(receive: Receive) -> None:
    """Return when nobody waits for the answer any more."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def no_answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Nobody can be asked: try again."""
    response = PlainTextResponse(GONE, 503, {"retry-after": "1"})
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(response)
    else:
        await response(scope, receive, send)
