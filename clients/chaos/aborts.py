"""Clients that leave, in every state, politely or not: what they said must still come to its end."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed, WebSocketException

from clients.aio import ClientError, stream_url
from clients.captions import Captions
from streaming.wire.messages import End, Flush

from .faults import meet, say
from .talk import CODEC, Trial, follow

BEFORE = ("connect", "request", "open", "half_start", "start")
"""States in which no session is known to the client yet."""
WITHIN = ("ready", "speech", "flush", "end")
CROWD = 50
"""Clients of one scenario that come and go."""


async def abort(url: str, drawn: random.Random, trial: Trial) -> None:
    """A client goes in one of the states; a reader sees the session to its end."""
    state = drawn.choice([*BEFORE, *WITHIN, *WITHIN])
    trial.struck += 1
    if state in BEFORE:
        await _early(url, drawn, state, trial)
        return
    scene, shown = trial.draw(drawn), Captions()
    socket, ready = await meet(url, scene.start)
    following = asyncio.create_task(follow(url, ready, shown))
    listening = asyncio.create_task(_drain(socket))
    if state != "ready":
        whole = state == "end"
        await say(socket, scene.data[: len(scene.data) if whole else drawn.randrange(len(scene.data))], drawn)
        with suppress(ConnectionClosed):
            if state == "flush":
                await socket.send(CODEC.encode_client(Flush("x")))
            elif state == "end":
                await socket.send(CODEC.encode_client(End()))
                # Without this the end may be lost together with the connection: that is state `speech`.
                await asyncio.sleep(drawn.choice([0.0, 0.05]))
    await leave(socket, drawn)
    await asyncio.wait([listening])
    await following
    trial.judge(scene, shown, whole=False)


async def crowd(url: str, drawn: random.Random, trial: Trial) -> None:
    """Many come, say little or nothing, and go; ten at a time."""
    gate = asyncio.Semaphore(10)

    async def one(own: random.Random) -> None:
        async with gate:
            state = own.choice([*BEFORE, "ready"])
            if state in BEFORE:
                await _early(url, own, state, trial)
                return
            socket, _ = await meet(url, trial.draw(own, 1.0, 2.0).start)
            await leave(socket, own)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(CROWD):
            tasks.create_task(one(random.Random(drawn.random())))
    trial.struck += CROWD


async def leave(socket: ClientConnection, drawn: random.Random) -> None:
    """Break the connection, close it, or say that nothing more is wanted."""
    code = drawn.choice([None, 1000, 1001])
    if code is None:
        socket.transport.abort()
    else:
        await socket.close(code)


async def _early(url: str, drawn: random.Random, state: str, trial: Trial) -> None:
    """Go before there is a session."""
    if state in ("connect", "request"):
        parts = urlsplit(stream_url(url))
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
        if state == "request":
            text = f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\n"
            writer.write(text.encode()[: drawn.randint(1, len(text))])
            await writer.drain()
        if drawn.random() < 0.5:
            writer.transport.abort()
        else:
            writer.close()
        return
    with suppress(ClientError, WebSocketException, OSError):
        socket = await open_socket(stream_url(url), proxy=None, compression=None)
        first = CODEC.encode_client(trial.draw(drawn, 1.0, 2.0).start)
        if state == "start":
            await socket.send(first)
        elif state == "half_start":
            await socket.send(first[: len(first) // 2])
        await leave(socket, drawn)


async def _drain(socket: ClientConnection) -> None:
    with suppress(ConnectionClosed):
        while True:
            await socket.recv()
