"""The websocket as uvicorn speaks it, and as a connection wants it.

What uvicorn's own protocol lacks: an application cannot cut a client that reads nothing (closing waits for
a buffer that never drains), and such a client's pings are answered into that buffer without end; after
refusing an oversized message the socket is dropped while the client still sends, so that it sees a reset
instead of the refusal; some refused handshakes are never answered; fragments of nothing are kept for ever; a
read full of tiny messages is taken apart in one go (`pace`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

from streaming.wire.errors import CloseCode

from .door import QUIET_S
from .pace import Pace
from .writer import ChannelClosed

EXTENSION = "seamscribe.abort"

UNREAD = 1 << 15
"""Bytes that may wait for the application before the socket is not read: a second of 16-bit audio. uvicorn
stops reading at the first message and begins again after it, which takes two system calls a packet."""

LEAST = 1 << 8
"""Bytes that a message counts at least."""

UNANSWERED = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 34\r\n"
    b"Connection: close\r\n\r\nThis is no websocket's handshake.\n"
)


class Protocol(WebSocketsSansIOProtocol):
    """Adds an abort to the scope, and a close that a client can read while it is still sending."""

    _whole: bytearray | None = None
    _unread = 0

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            self.scope["extensions"][EXTENSION] = {"abort": self.transport.abort}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # Over plain HTTP it was one already.
        self._pace = transport if isinstance(transport, Pace) else Pace(cast(asyncio.Transport, transport))
        self.transport = self._pace
        self._pace.adopt(self._parse)

    def connection_lost(self, exc: Exception | None) -> None:
        self.disconnected = True
        self.writable.set()
        self._pace.drained(lambda: super(Protocol, self).connection_lost(exc))

    def data_received(self, data: bytes) -> None:
        self._pace.take(data)

    def _parse(self, data: bytes) -> None:
        if self.conn.parser_exc is None:
            super().data_received(data)
            if not self.handshake_initiated and self.conn.handshake_exc is not None:
                self._refuse_handshake()
        elif self.close_timer is not None:
            # After a refusal what still comes is read and dropped, until the client falls silent.
            self.close_timer.cancel()
            self.close_timer = self.loop.call_later(QUIET_S, self.transport.close)

    def _refuse_handshake(self) -> None:
        self.handshake_initiated = self.handshake_complete = self.close_sent = True
        self.transport.write(b"".join(self.conn.data_to_send()) or UNANSWERED)
        self.transport.close()

    def handle_ping(self) -> None:
        pong = b"".join(self.conn.data_to_send())
        # A client that reads nothing needs no pongs, and may not fill our memory with them.
        if self.writable.is_set():
            self.transport.write(pong)

    def handle_text(self, event: Frame) -> None:
        self._whole = None if event.fin else bytearray(event.data)
        super().handle_text(event)

    def handle_bytes(self, event: Frame) -> None:
        self._whole = None if event.fin else bytearray(event.data)
        super().handle_bytes(event)

    def handle_cont(self, event: Frame) -> None:
        # The parser bounds the bytes of a message but not its fragments, which may be empty.
        assert self._whole is not None
        self._whole += event.data
        if event.fin:
            self.frames, self._whole = [bytes(self._whole)], None
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        self._unread = 0 if self.queue.empty() else self._unread
        self._unread += max(sum(map(len, self.frames)), LEAST)
        if self.read_paused or self._unread >= UNREAD:
            super().send_receive_event_to_app()
        else:
            self.read_paused = True  # what uvicorn believes it need not do
            super().send_receive_event_to_app()
            self.read_paused = False

    async def send(self, message: ASGISendEvent) -> None:
        if self.close_sent and self.handshake_complete and message["type"] == "websocket.send":
            # The client said goodbye, or broke the protocol, while this was on its way: no fault of ours.
            raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and self.close_sent:
            # Else uvicorn logs an error: it takes a refused handshake for a forgotten one.
            self.handshake_complete = True
        elif message["type"] == "websocket.close":
            self._let_go()

    def handle_close(self, event: Frame) -> None:
        super().handle_close(event)
        self._let_go()

    def handle_parser_exception(self) -> None:
        refusal = self.conn.close_sent
        assert refusal is not None
        self.stop_keepalive()
        self.queue.put_nowait(
            {"type": "websocket.disconnect", "code": refusal.code, "reason": refusal.reason}
        )
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(QUIET_S, self.transport.close)
        self.loop.call_later(self.close_timeout, self.transport.close)
        self._let_go()

    def _let_go(self) -> None:
        """Closing waits until the client has taken everything: not for ever."""
        self.loop.call_later(2 * self.close_timeout, self.transport.abort)


class SocketChannel:
    """A `Channel` over an accepted websocket."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        extension = websocket.scope.get("extensions", {}).get(EXTENSION)
        self._abort: Callable[[], None] = extension["abort"] if extension else _cannot
        self._mute = False
        """Whether nothing more can be sent: Starlette takes it for a bug if it is tried again."""

    async def receive(self) -> str | bytes:
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise ChannelClosed(for_good=message.get("code") == CloseCode.NORMAL)
        text: str | None = message.get("text")
        data: bytes = message.get("bytes") or b""
        return data if text is None else text

    async def send(self, data: str | bytes) -> None:
        if self._mute:
            raise ChannelClosed
        try:
            if isinstance(data, str):
                await self._websocket.send_text(data)
            else:
                await self._websocket.send_bytes(data)
        except WebSocketDisconnect:
            self._mute = True
            raise ChannelClosed from None

    async def close(self, code: int, reason: str) -> None:
        if self._mute:
            raise ChannelClosed
        self._mute = True
        try:
            await self._websocket.close(code, reason)
        except WebSocketDisconnect:
            raise ChannelClosed from None

    def abort(self) -> None:
        self._abort()


def _cannot() -> None:
    """Under another server a client that does not read is left to that server's own timeouts."""


class NoTraceback(logging.Filter):
    """uvicorn logs a client's broken UTF-8 as an exception; it is the client's mistake, not ours."""

    def filter(self, record: logging.LogRecord) -> bool:
        if "Invalid UTF-8" in record.getMessage():
            record.exc_info = None
            record.levelno, record.levelname = logging.INFO, "INFO"
        return True


NO_TRACEBACK = NoTraceback()
"""One instance: a logger takes the same filter only once."""
