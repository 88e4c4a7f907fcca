"""From a session's log to one socket: the newest state, as fast as its client reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from streaming.errors import SlowReader
from streaming.kept.log import Cursor
from streaming.sessions.registry import Entry
from streaming.settings import LimitSettings
from streaming.wire.codec import Codec
from streaming.wire.errors import WireError, told
from streaming.wire.messages import BEAT_S, Ack, ServerMessage

CLOSE_S = 5.0
"""How long the last message and the close may take."""


class ChannelClosed(Exception):
    """The client is gone; `for_good` where it said so itself, with the code of a stream that is done."""

    def __init__(self, *, for_good: bool = False) -> None:
        super().__init__()
        self.for_good = for_good


class Channel(Protocol):
    """A message socket."""

    async def receive(self) -> str | bytes:
        """The next message; raises `ChannelClosed`, and `WireError` where what came is none. Cancelling loses
        nothing."""
        ...

    async def send(self, data: str | bytes) -> None:
        """Returns when there is room for more; raises `ChannelClosed`."""
        ...

    async def close(self, code: int, reason: str) -> None: ...

    def abort(self) -> None:
        """Cut the connection without waiting for the client to read."""
        ...


class Writer:
    """One client's or reader's. It has everything up to number `after`."""

    def __init__(
        self, channel: Channel, codec: Codec, entry: Entry, limits: LimitSettings, after: int = 0
    ) -> None:
        self._channel = channel
        self._codec = codec
        self._entry = entry
        self._limits = limits
        self._cursor = Cursor(entry.log, after)
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._ack: tuple[int, int] | None = None
        self._acked: tuple[int, int] | None = None
        self._acked_at = self._loop.time()

    @property
    def at(self) -> int:
        """Number of the newest message sent."""
        return self._cursor.at

    @property
    def behind(self) -> bool:
        """Whether as much waits as may."""
        return self._cursor.behind(self._limits.outbox) >= self._limits.outbox

    def acknowledge(self, sample: int, durable: int) -> None:
        """Have it sent where it is news, or nothing was acknowledged for a while."""
        if (sample, durable) != self._acked or self._loop.time() - self._acked_at >= BEAT_S:
            self._ack = (sample, durable)
            self._news.set()

    async def run(self, sent: Callable[[], None]) -> None:
        """Until everything is sent that the session will ever say; `sent` is called after each message.
        Raises `ChannelClosed` and `SlowReader`."""
        self._entry.waiting.add(self._news)
        try:
            while True:
                self._news.clear()
                if (message := self._next()) is not None:
                    await self._entry.recorder.on_disk(message.seq)
                    if self._entry.elsewhere:
                        return
                    await self.send(message)
                    sent()
                elif self._entry.outcome is not None:
                    return
                else:
                    await self._news.wait()
        finally:
            self._entry.waiting.discard(self._news)

    async def send(self, message: ServerMessage) -> None:
        """One message, within `slow_reader_s`; raises like `run`."""
        try:
            async with asyncio.timeout(self._limits.slow_reader_s):
                await self._channel.send(self._codec.encode(message))
        except TimeoutError:
            raise SlowReader(self._limits.slow_reader_s) from None

    def _next(self) -> ServerMessage | None:
        # Nothing but an error comes after the receipt.
        if self._ack is not None and self._entry.log.ended is None:
            self._acked, self._ack = self._ack, None
            self._acked_at = self._loop.time()
            return Ack(self.at, *self._acked)
        return self._cursor.take()


async def part(channel: Channel, codec: Codec, error: WireError, seq: int) -> None:
    """Send the error as the last message and close; raises nothing."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await channel.send(codec.encode(told(error, seq)))
            await channel.close(error.close, error.code)
    except TimeoutError:
        channel.abort()
    except ChannelClosed:
        pass


async def close(channel: Channel, entry: Entry) -> None:
    """Close as the session ended; raises `ChannelClosed`."""
    assert entry.outcome is not None
    try:
        async with asyncio.timeout(CLOSE_S):
            await channel.close(entry.outcome.code, entry.outcome.reason)
    except TimeoutError:
        channel.abort()
