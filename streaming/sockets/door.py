"""TCP connections before they are sessions: how many may be there, and for how long.

uvicorn waits for ever for a request that does not come, or comes in half, and for a client that does not
take its answer; and it takes any number of such connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import h11
from starlette.responses import PlainTextResponse
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from streaming.denial import later

from .pace import Pace

QUIET_S = 0.5
"""A refused client that sends nothing for so long has read why, or never will."""


BRIEF_S = 2.0
"""Who comes when the house is full has so long to ask whether it is well."""

FULL = "Too many connections wait here: come back later.\n"


@dataclass(frozen=True, slots=True)
class Door:
    """The rules. Seconds."""

    most: int
    """Connections without a session, at once."""
    patience_s: float
    """How long a request may take to come whole, and an answer to be taken further."""
    retry_after_s: float
    sessions: Callable[[], int]
    """How many connections have a session, or read one."""
    spare: int = 0
    """More connections that are let in for a moment to ask what is `asked`: whether the server is well."""
    asked: frozenset[str] = frozenset()


class HttpProtocol(H11Protocol):
    """Gives every request, and every answer, a deadline; refuses one connection too many with 503."""

    door: ClassVar[Door]
    _timer: asyncio.TimerHandle | None = None
    _refused = False
    _brief = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._pace = Pace(transport)
        self._pace.adopt(self._parse)
        super().connection_made(self._pace)
        over = len(self.connections) - self.door.sessions() - self.door.most
        if over > self.door.spare:
            self._refuse()
        elif over > 0:
            self._brief, self.app = True, self._only_asked
            self._arm(BRIEF_S, self._over)
        else:
            self._arm(self.door.patience_s, self._late)

    def _refuse(self) -> None:
        self._refused = True
        self._answer("503 Service Unavailable", FULL, _lines(later(self.door.retry_after_s)))
        # Closing at once, with the request still to come, would reset the answer away.
        self._arm(QUIET_S, self.transport.close)

    def _over(self) -> None:
        if self.cycle is None:
            self._refuse()
        else:
            self.transport.close()

    async def _only_asked(self, scope: Any, receive: Any, send: Any) -> None:
        """The application, for one of the few that came when the house was full."""
        asked = scope["path"] in self.door.asked
        headers = {**later(self.door.retry_after_s), "connection": "close"}
        app = self.config.loaded_app if asked else PlainTextResponse(FULL, 503, headers)
        await app(scope, receive, send)
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        self._pace.take(data)

    def _parse(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._pace.drop()  # nobody would read the answer
        self._pace.drained(lambda: super(HttpProtocol, self).connection_lost(exc))

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        if self._brief:
            self._refuse()
            return
        # From here on the websocket has its own deadlines.
        self._disarm()
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        if not self._brief:
            self._arm(self.door.patience_s, self._late)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        cycle = cast(RequestResponseCycle | None, self.cycle)
        if cycle is not None:
            # The application's own answer would come behind this one: it talks to nobody from here on.
            cycle.disconnected = True
            cycle.message_event.set()
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            # What is broken is the rest of a request that was answered already.
            self.transport.close()

    def _late(self) -> None:
        cycle = cast(RequestResponseCycle | None, self.cycle)
        if self.transport.is_closing():
            self._linger(0)
        elif cycle is not None and not cycle.response_complete:
            self._arm(self.door.patience_s, self._late)
        else:
            if cycle is None or self.conn.trailing_data[0]:
                self._answer("408 Request Timeout", "The request did not come whole in time.\n")
            self.transport.close()
            self._linger(0)

    def _linger(self, before: int) -> None:
        """Closing waits for the client to take the rest; cut it off once it takes no more."""
        left = self.transport.get_write_buffer_size()
        if left and left == before:
            self.transport.abort()
        elif left:
            self._arm(self.door.patience_s, lambda: self._linger(left))

    def _answer(self, status: str, text: str, header: str = "") -> None:
        self.transport.write(
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n{header}"
            f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode()
        )

    def _arm(self, seconds: float, then: Callable[[], None]) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, then)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _lines(headers: Mapping[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


def http_protocol(door: Door) -> type[HttpProtocol]:
    """The protocol behind `door`, as uvicorn wants it: a class that it makes instances of."""
    return cast(type[HttpProtocol], type("HttpProtocol", (HttpProtocol,), {"door": door}))
