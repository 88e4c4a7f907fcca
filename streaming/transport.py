"""The websocket as uvicorn speaks it, and as a connection wants it.

uvicorn's own protocol lacks two things: an application cannot cut a client that reads nothing (closing
waits for a buffer that never drains), and after refusing an oversized message it drops the socket while
the client still sends, so that the client sees a reset instead of the refusal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from .connection import ChannelClosed

EXTENSION = "seamscribe.abort"

QUIET_S = 0.5
"""A refused client that sends nothing for so long has read why, or never will."""


class Protocol(WebSocketsSansIOProtocol):
    """Adds an abort to the scope, and a close that a client can read while it is still sending."""

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            self.scope["extensions"][EXTENSION] = {"abort": self.transport.abort}

    def data_received(self, data: bytes) -> None:
        if self.conn.parser_exc is None:
            super().data_received(data)
        elif self.close_timer is not None:
            # After a refusal what still comes is read and dropped, until the client falls silent.
            self.close_timer.cancel()
            self.close_timer = self.loop.call_later(QUIET_S, self.transport.close)

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


class SocketChannel:
    """A `Channel` over an accepted websocket."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        extension = websocket.scope.get("extensions", {}).get(EXTENSION)
        self._abort: Callable[[], None] = extension["abort"] if extension else _cannot

    async def receive(self) -> str | bytes:
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise ChannelClosed
        text: str | None = message.get("text")
        data: bytes = message.get("bytes") or b""
        return data if text is None else text

    async def send(self, data: str | bytes) -> None:
        try:
            if isinstance(data, str):
                await self._websocket.send_text(data)
            else:
                await self._websocket.send_bytes(data)
        except WebSocketDisconnect:
            raise ChannelClosed from None

    async def close(self, code: int, reason: str) -> None:
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
