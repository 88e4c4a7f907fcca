"""Both ends of a message socket, in memory."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any

from streaming.sockets.writer import ChannelClosed


class MemoryChannel:
    """The server's end is a `Channel`; the test holds the client's end. `reading = False` makes a client
    that reads nothing: sends hang after `buffer` messages."""

    def __init__(self, buffer: int = 4) -> None:
        self.sent: list[Any] = []
        """Messages the client got, JSON decoded."""
        self.closed: tuple[int, str] | None = None
        self.aborted = False
        self._inbox: deque[str | bytes | ChannelClosed] = deque()
        self._arrived = asyncio.Event()
        self._buffer = buffer
        self._readable = asyncio.Event()
        self._readable.set()
        self.taken = 0
        """Messages the server has read."""

    # The client's end.

    def say(self, *messages: dict[str, Any] | str | bytes) -> None:
        for message in messages:
            self._inbox.append(json.dumps(message) if isinstance(message, dict) else message)
        self._arrived.set()

    def leave(self) -> None:
        """Close, as a client that wants no more."""
        self._inbox.append(ChannelClosed(for_good=True))
        self._arrived.set()

    def cut(self) -> None:
        """The connection breaks: what the server has not read is lost, and it can say nothing more."""
        self._inbox.clear()
        self._inbox.append(ChannelClosed())
        self._arrived.set()
        self._readable.set()
        self.closed = (1006, "")

    def stop_reading(self) -> None:
        self._readable.clear()

    def read_again(self) -> None:
        self._readable.set()

    def of(self, type: str) -> list[Any]:
        return [message for message in self.sent if message["type"] == type]

    # The server's end.

    async def receive(self) -> str | bytes:
        while not self._inbox:
            self._arrived.clear()
            await self._arrived.wait()
        message = self._inbox.popleft()
        if isinstance(message, ChannelClosed):
            self._inbox.appendleft(message)
            raise ChannelClosed(for_good=message.for_good)  # a new one, as from a socket
        self.taken += 1
        return message

    async def send(self, data: str | bytes) -> None:
        if self.closed is not None:
            raise ChannelClosed
        if not self._readable.is_set():
            self._buffer -= 1
            if self._buffer < 0:
                await self._readable.wait()
        self.sent.append(self.decode(data))

    def decode(self, data: str | bytes) -> Any:
        return json.loads(data)

    async def close(self, code: int, reason: str) -> None:
        await self._readable.wait()
        self.closed = (code, reason)

    def abort(self) -> None:
        """What arrived before is still read, as from a socket."""
        self.aborted = True
        self._inbox.append(ChannelClosed())
        self._arrived.set()
