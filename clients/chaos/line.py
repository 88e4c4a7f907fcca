"""The line between client and server: a TCP proxy that breaks, falls silent, stalls or crawls."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

How = Literal["close", "reset", "silence", "stall"]

_PIECE = 1 << 14
_CRAWL_PIECE = 512


@dataclass(frozen=True, slots=True)
class Fault:
    """What becomes of one connection after it carried so many bytes up or down: it is closed or reset, it
    falls silent while both ends believe in it, or nothing passes for `stall_s` and then all at once.
    `crawl`: bytes a second downwards until then."""

    up: int | None = None
    down: int | None = None
    how: How = "close"
    stall_s: float = 0.0
    crawl: int | None = None


@dataclass
class Line:
    """Faults of the connections in the order in which they are made; one that did not strike, for the server
    refused the connection, say, is the next one's. What comes after the last is spared."""

    target: tuple[str, int]
    faults: list[Fault]
    url: str = ""
    struck: int = 0
    """How many faults came true."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        # Only `close` cancels, and the streams of 3.11 would log it as an error.
        with suppress(asyncio.CancelledError):
            fault, hit = self.faults.pop(0) if self.faults else None, asyncio.Event()
            await self._carry(reader, writer, fault or Fault(), hit)
            if fault is not None and not hit.is_set():
                self.faults.insert(0, fault)
        self._tasks.discard(task)

    async def close(self) -> None:
        """End what still hangs on the line."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault, hit: asyncio.Event
    ) -> None:
        try:
            their_reader, their_writer = await _dial(self.target, small=fault.crawl is not None)
        except OSError:
            writer.transport.abort()
            return
        struck = asyncio.Event()
        pumps = [
            asyncio.create_task(self._pump(reader, their_writer, fault.up, fault, (hit, struck), None)),
            asyncio.create_task(
                self._pump(their_reader, writer, fault.down, fault, (hit, struck), fault.crawl)
            ),
        ]
        watch = asyncio.create_task(struck.wait())
        try:
            await asyncio.wait([*pumps, watch], return_when=asyncio.FIRST_COMPLETED)
            if struck.is_set() and fault.how == "silence":
                for pump in pumps:
                    pump.cancel()
                await asyncio.Event().wait()  # until the scenario is over
        finally:
            for task in (*pumps, watch):
                task.cancel()
            for end in (writer, their_writer):
                if fault.how == "reset" and struck.is_set():
                    _reset(end)
                else:
                    end.close()
            await asyncio.gather(*pumps, watch, return_exceptions=True)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        left: int | None,
        fault: Fault,
        events: tuple[asyncio.Event, asyncio.Event],
        crawl: int | None,
    ) -> None:
        """`events`: the fault came true; the connection ends of it."""
        hit, struck = events
        with suppress(OSError):
            while data := await reader.read(_CRAWL_PIECE if crawl else _PIECE):
                if crawl and not struck.is_set():
                    await asyncio.sleep(len(data) / crawl)
                rest = b"" if left is None else data[left:]
                writer.write(data if left is None else data[:left])
                await writer.drain()
                if left is None or (left := left - len(data)) > 0:
                    continue
                self.struck += 1
                hit.set()
                if fault.how != "stall":
                    struck.set()
                    return
                left, crawl = None, None
                await asyncio.sleep(fault.stall_s)
                writer.write(rest)


async def _dial(target: tuple[str, int], *, small: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """`small`: the kernel keeps little for us, so that the other end feels how slowly we read."""
    if not small:
        return await asyncio.open_connection(*target)
    ours = socket.socket()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    ours.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(ours, target)
    except OSError:
        ours.close()
        raise
    return await asyncio.open_connection(sock=ours, limit=1024)


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()


@asynccontextmanager
async def line(url: str, faults: Sequence[Fault]) -> AsyncIterator[Line]:
    """A line to the server at `url`, with these faults."""
    parts = urlsplit(url)
    made = Line((parts.hostname or "127.0.0.1", parts.port or 80), list(faults))
    server = await asyncio.start_server(made.handle, "127.0.0.1", 0)
    try:
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield made
    finally:
        server.close()
        await made.close()
