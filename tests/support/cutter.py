"""A TCP proxy that breaks connections: after so many bytes, with a reset or in silence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Cutter:
    """`after`: bytes (up, down) that a connection carries before it is cut, one pair each, None for any
    number; connections after the last pair are not cut. `cuts` counts."""

    target: tuple[str, int]
    after: list[tuple[int | None, int | None]]
    url: str = ""
    cuts: int = 0
    connections: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up, down = self.after.pop(0) if self.after else (None, None)
        self.connections += 1
        try:
            their_reader, their_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        cut = asyncio.Event()
        pumps = [
            asyncio.create_task(self._pump(reader, their_writer, up, cut)),
            asyncio.create_task(self._pump(their_reader, writer, down, cut)),
        ]
        await asyncio.wait([*pumps, asyncio.create_task(cut.wait())], return_when=asyncio.FIRST_COMPLETED)
        self.cuts += cut.is_set()
        for pump in pumps:
            pump.cancel()
        for end in (writer, their_writer):
            # What was passed on is there to be read, then the connection is gone without a close.
            end.close()
        await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        left: int | None,
        cut: asyncio.Event,
    ) -> None:
        while data := await reader.read(1 << 14):
            if left is not None:
                data = data[:left]
                left -= len(data)
            writer.write(data)
            await writer.drain()
            if left == 0:
                cut.set()
                return


@asynccontextmanager
async def cutting(address: str, after: Sequence[tuple[int | None, int | None]]) -> AsyncIterator[Cutter]:
    """A proxy before the server at `address` (host:port)."""
    host, _, port = address.rpartition(":")
    cutter = Cutter((host, int(port)), list(after))
    server = await asyncio.start_server(cutter.handle, "127.0.0.1", 0)
    async with server:
        cutter.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield cutter
