"""How each server is started and spoken to. Every one plays a stream at speed 1, in packets of 100 ms."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from clients.aio import ClientError
from clients.audio import BYTES_PER_SECOND, packets
from clients.bench.capacity import open_door
from clients.bench.load import Script
from clients.launch import serving, stop
from clients.play import Arrival, Pace, Playback, play
from streaming.wire.messages import Start

from .judge import Heard

OURS = "seamscribe"
PACKET_S = 0.1
START_S = 180.0
"""A peer that loads its model is ready within this."""
LAST_WORDS_S = 120.0
"""The rest of its text comes within this, or it is lost."""
STOP_S = 15.0


class Peer(Protocol):
    """A server and the way to speak to it."""

    @property
    def name(self) -> str: ...

    def running(self, streams: int) -> AbstractAsyncContextManager[tuple[str, int]]:
        """Start it for so many streams: its address and process id."""
        ...

    async def speak(self, url: str, said: Script) -> Heard:
        """Play one stream."""
        ...


@dataclass(frozen=True, slots=True)
class Ours:
    """Seamscribe, over its own protocol; voices are not told apart, as the others do not either."""

    model: str
    language: str
    name: str = OURS

    @asynccontextmanager
    async def running(self, streams: int) -> AsyncIterator[tuple[str, int]]:
        given = ["--engine", "local", "--model", self.model, "--no-speakers"]
        with open_door(given, streams) as arguments:
            async with serving(arguments) as child:
                yield child.url, child.pid

    async def speak(self, url: str, said: Script) -> Heard:
        heard, playback = Heard(), Playback("")

        def listen(playback: Playback, arrival: Arrival) -> None:
            captions = playback.captions
            heard.tell(captions.committed, captions.partial, arrival.at_s)

        try:
            start = Start(language=self.language)
            await play(playback, url, start, said.pieces(), Pace(packet_s=PACKET_S), listen)
        except ClientError as error:
            playback.failure = str(error)
        heard.sent_s, heard.faults = playback.sent_s, playback.faults()
        return heard


async def paced(said: Script, heard: Heard, zero: float) -> AsyncIterator[bytes]:
    """Packets of a stream, each when its last sample has been spoken; `zero` is the time of the first."""
    loop = asyncio.get_running_loop()
    for packet in packets(said.pieces(), round(PACKET_S * BYTES_PER_SECOND)):
        heard.sent_s += len(packet) / BYTES_PER_SECOND
        await asyncio.sleep(zero + heard.sent_s - loop.time())
        yield packet


@asynccontextmanager
async def child(
    command: Sequence[str], ready: Callable[[], bool], more: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[int]:
    """Another's server as a child process, with `more` variables, once it is `ready`; its process id.

    Raises `OSError` where it ends before, or is not ready in `START_S`.
    """
    surroundings = {**os.environ, "HF_HUB_OFFLINE": "1", **more}
    surroundings.pop("PYTHONPATH", None)
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env=surroundings,
    )
    try:
        async with asyncio.timeout(START_S):
            while not await asyncio.to_thread(ready):
                if process.returncode is not None:
                    raise OSError(f"{command[0]} ended with status {process.returncode}")
                await asyncio.sleep(0.5)
        yield process.pid
    finally:
        await stop(process, STOP_S)


def listens(port: int) -> bool:
    """Whether somebody takes connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True
