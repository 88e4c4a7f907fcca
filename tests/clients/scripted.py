"""A server that says what a test wants: the client's other end, on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from websockets import Subprotocol
from websockets.asyncio.server import ServerConnection, serve

from streaming.wire.codec import SUBPROTOCOLS, Codec, choose
from streaming.wire.messages import Audio, ClientMessage, End, ServerMessage

Script = Callable[["Peer"], Awaitable[None]]


@dataclass
class Peer:
    """One connection as the script sees it."""

    socket: ServerConnection
    codec: Codec
    heard: list[ClientMessage] = field(default_factory=list)

    async def hear(self) -> ClientMessage:
        message = self.codec.decode(await self.socket.recv())
        self.heard.append(message)
        return message

    async def hear_all(self) -> None:
        while not isinstance(await self.hear(), End):
            pass

    async def say(self, *messages: ServerMessage) -> None:
        for message in messages:
            await self.socket.send(self.codec.encode(message))

    @property
    def audio(self) -> bytes:
        return b"".join(m.data for m in self.heard if isinstance(m, Audio))


@dataclass
class Scripted:
    url: str
    peers: list[Peer] = field(default_factory=list)


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[Scripted]:
    """Run `script` for every connection; the socket is closed when it returns."""
    server = Scripted("")

    async def handle(socket: ServerConnection) -> None:
        codec = choose([socket.subprotocol or ""])
        assert codec is not None
        peer = Peer(socket, codec)
        server.peers.append(peer)
        await script(peer)

    async with serve(
        handle, "127.0.0.1", 0, subprotocols=[Subprotocol(name) for name in SUBPROTOCOLS]
    ) as running:
        host, port = next(iter(running.sockets)).getsockname()[:2]
        server.url = f"http://{host}:{port}"
        yield server
        await asyncio.sleep(0)
