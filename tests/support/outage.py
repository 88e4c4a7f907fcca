"""A way to a server that can be closed for a while: connections break, and nobody gets a new one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Way:
    """A proxy before the server at `target`; `url` is where it is reached."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.url = ""
        self._target = target
        self._closed = False
        self._writers: set[asyncio.StreamWriter] = set()

    async def fail(self) -> None:
        """Break every connection, without a close, and take no more."""
        self._closed = True
        for writer in list(self._writers):
            writer.transport.abort()

    def heal(self) -> None:
        self._closed = False

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        if self._closed:
            writer.transport.abort()
            return
        theirs, ours = await asyncio.open_connection(*self._target)
        self._writers |= {writer, ours}
        pumps = [asyncio.create_task(_pump(reader, ours)), asyncio.create_task(_pump(theirs, writer))]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        self._writers -= {writer, ours}
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for end in (writer, ours):
            end.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 14):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def failing(address: str) -> AsyncIterator[Way]:
    """A way to the server at `address` (host:port) that the test can close."""
    host, _, port = address.rpartition(":")
    way = Way((host, int(port)))
    server = await asyncio.start_server(way.handle, "127.0.0.1", 0)
    async with server:
        way.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield way
        finally:
            await way.fail()
