"""A socket of another protocol as a native client: what a `Connection` serves like any other.

Between the dialect and the connection the native protocol is spoken, in MessagePack: what a dialect makes up
is checked like what a client sends, and the connection knows of no dialect.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from starlette.websockets import WebSocket

from streaming.access.auth import CALLER, Caller, spoken
from streaming.access.tokens import fresh_id
from streaming.denial import refused
from streaming.dialects.dialect import Bye, Dialect, Frame, Handshake, Heard, Ignored, Way
from streaming.dialects.query import Query
from streaming.sessions.services import Services
from streaming.wire.codec import MsgpackCodec
from streaming.wire.errors import WireError, shown
from streaming.wire.messages import ClientMessage, Error

from .connection import Connection
from .transport import SocketChannel
from .writer import CLOSE_S, Channel, ChannelClosed

logger = logging.getLogger("seamscribe")

TICK_S = 1.0
REASON = 123
"""Bytes of a close reason, by the websocket standard."""
NAMED = 20
"""Names of one message that a log line tells; all are counted."""

CODEC = MsgpackCodec()


class Bridge:
    """The native end of a dialect's socket: a `Channel` for `CODEC`."""

    def __init__(
        self, channel: Channel, dialect: Dialect, patience_s: float, ignored: Callable[[Ignored], None]
    ) -> None:
        """A frame may take `patience_s` to send; `ignored` hears of what the dialect knows nothing of."""
        self._channel = channel
        self._dialect = dialect
        self._patience_s = patience_s
        self._ignored = ignored
        self._heard: deque[ClientMessage | WireError] = deque()
        self._greeted = self._left = False
        self._quiet_s = 0.0
        self._error: Error | None = None
        self._turn = asyncio.Lock()

    async def receive(self) -> bytes:
        """The next message for the session, encoded; raises `WireError` too."""
        while not self._heard:
            for one in self._collected(await self._listen()):
                await self._act(one)
        message = self._heard.popleft()
        if isinstance(message, WireError):
            raise message
        return CODEC.encode_client(message)

    async def send(self, data: str | bytes) -> None:
        message = CODEC.decode_server(data)
        if isinstance(message, Error):
            self._error = message  # how it is told is a matter of the close
        else:
            await self._put(tuple(self._dialect.say(message)))

    async def close(self, code: int, reason: str) -> None:
        await self._bid(self._dialect.close(code, self._error))

    def abort(self) -> None:
        self._channel.abort()

    async def _listen(self) -> Iterable[Heard]:
        """What follows from one frame, or from a second in which none came."""
        if not self._greeted:
            self._greeted = True
            return self._dialect.greet()
        if self._left:
            raise ChannelClosed(for_good=True)
        try:
            async with asyncio.timeout(TICK_S):
                frame = await self._channel.receive()
        except TimeoutError:
            # Not by the clock: while we did not listen the client was not silent.
            self._quiet_s += TICK_S
            return self._dialect.tick(self._quiet_s)
        except ChannelClosed:
            self._left = True
            return self._dialect.gone()
        self._quiet_s = 0.0
        return self._dialect.hear(frame)

    def _collected(self, heard: Iterable[Heard]) -> list[Heard | WireError]:
        """All at once, for the dialect may be asked other things while frames are sent."""
        found: list[Heard | WireError] = []
        try:
            found.extend(heard)
        except WireError as error:
            found.append(error)
        return found

    async def _act(self, one: Heard | WireError) -> None:
        match one:
            case str() | bytes():
                await self._reply(one)
            case Ignored():
                self._ignored(one)
            case Bye():
                await self._leave(one)
            case _:
                self._heard.append(one)

    async def _reply(self, frame: Frame) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                await self._put((frame,))
        except TimeoutError:
            self.abort()
            raise ChannelClosed(for_good=True) from None
        except ChannelClosed:
            pass  # whoever cannot be answered may have said more before: listening comes to its end

    async def _leave(self, bye: Bye) -> None:
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._bid(bye)
        except TimeoutError:
            self.abort()
        raise ChannelClosed(for_good=True)

    async def _bid(self, bye: Bye) -> None:
        await self._put(bye.frames)
        reason = bye.reason.encode()[:REASON].decode(errors="ignore")
        await self._channel.close(bye.code, reason)

    async def _put(self, frames: tuple[Frame, ...]) -> None:
        # Replies and what the session says come from two tasks.
        async with self._turn:
            for frame in frames:
                await self._channel.send(frame)


async def serve(websocket: WebSocket, way: Way, services: Services) -> None:
    """One client of this way, from its handshake to the close."""
    if (full := services.sessions.refusal()) is not None:
        services.metrics.refused.add(reason=full.code)
        await websocket.send_denial_response(refused(way.deny, full))
        return
    caller: Caller | None = websocket.scope[CALLER]
    query = Query.parse(websocket.scope["query_string"].decode("latin-1"))
    for name in way.key_queries:
        query.texts(name)
    offered = tuple(spoken(websocket.scope.get("subprotocols", ())))
    try:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        note, redacts = caller.note if caller else "", services.redact is not None
        dialect = way.open(Handshake(id := fresh_id(), now, query, offered, note, redacts))
    except WireError as error:
        services.metrics.refused.add(reason=error.code)
        await websocket.send_denial_response(refused(way.deny, error))
        return
    chosen = next((one for one in offered if one.lower() in way.subprotocols), None)
    headers = [(name.encode(), value.encode()) for name, value in dialect.headers.items()]
    await websocket.accept(subprotocol=chosen, headers=headers)

    def ignored(what: Ignored) -> None:
        services.metrics.ignored.add(len(what.names), protocol=way.name)
        if logger.isEnabledFor(logging.DEBUG):
            names = ", ".join(map(shown, what.names[:NAMED]))
            logger.debug("%(protocol)s: ignored: %(names)s", {"protocol": way.name, "names": names})

    if query.unread:
        ignored(Ignored(query.unread))
    bridge = Bridge(SocketChannel(websocket), dialect, services.limits.slow_reader_s, ignored)
    trace = websocket.headers.get("traceparent")
    await Connection(bridge, CODEC, services, caller, guest=id, traceparent=trace).run()
