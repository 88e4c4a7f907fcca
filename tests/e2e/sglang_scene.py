"""Two clients of our server, on loopback, over a scripted SGLang server that can fall ill."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from clients.aio import Stream, connect
from clients.captions import Captions
from engine.contract import UNREACHABLE
from engine.sglang.client import ClientSettings, SglangRecognizer
from engine.sglang.http import HttpSettings, HttpTransport
from streaming.wire.messages import Start
from tests.engine.sglang.scripted import Site, site
from tests.engine.sglang.slots import SlotsPolicy, SlotsServer
from tests.support.server import Running, server
from tests.support.sound import s16, speech
from tests.support.waiting import until

QUICK = HttpSettings(connect_s=2.0, stall_s=0.3, abort_s=1.0, rest_s=0.05, most_rest_s=0.1)


@dataclass
class Client:
    """One stream: what it says, and what it was told."""

    stream: Stream
    captions: Captions = field(default_factory=Captions)

    async def listen(self) -> None:
        async for message in self.stream:
            self.captions.receive(message)

    async def say(self, slots: str, flush: str) -> None:
        await self.stream.send(s16(speech(slots)))
        await self.stream.flush(flush)

    def has_flushed(self, flush: str) -> bool:
        return any(message.id == flush for message in self.captions.flushed)

    @property
    def words(self) -> list[str]:
        return [word.text for word in self.captions.transcript]


@dataclass
class Scene:
    """A scripted engine, our server over it, two clients of that."""

    engine: Site
    slots: SlotsServer
    running: Running
    clients: list[Client]

    async def say(self, slots: str, flush: str) -> None:
        for client in self.clients:
            await client.say(slots, flush)

    async def flushed(self, flush: str) -> None:
        await until(lambda: all(client.has_flushed(flush) for client in self.clients))

    def retried(self) -> float:
        """Finals asked for again, so far."""
        retries = self.running.services.metrics.retries
        causes = ("garbage", "connection", "engine", "aborted", "deadline", "stalled", UNREACHABLE)
        return sum(retries.value(cause=cause) for cause in causes)


@asynccontextmanager
async def scene(deadline_s: float = 1.0) -> AsyncIterator[Scene]:
    slots = SlotsServer()
    async with site(slots) as engine:
        transport = HttpTransport([engine.url], QUICK)
        settings = ClientSettings(model="slots", concurrency=4, deadline_s=deadline_s)
        recognizer = SglangRecognizer(transport, SlotsPolicy(), settings)
        async with (
            server(recognizer=recognizer) as running,
            connect(f"http://{running.address}", Start()) as one,
            connect(f"http://{running.address}", Start()) as two,
        ):
            found = Scene(engine, slots, running, [Client(one), Client(two)])
            async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
                listening = [tasks.create_task(client.listen()) for client in found.clients]
                yield found
                for client in found.clients:
                    await client.stream.end()
                await asyncio.gather(*listening)
