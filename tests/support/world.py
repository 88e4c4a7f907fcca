"""A server with the scripted engine in virtual time, and what a client may rely on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from engine.contract import Audio, Recognizer, SpeakerEncoder
from engine.fake import FakeRecognizer, FakeScript
from streaming.sessions.services import Services
from streaming.settings import LimitSettings
from streaming.sockets.connection import Connection
from streaming.wire.codec import JsonCodec
from tests.support.channel import MemoryChannel
from tests.support.services import VIRTUAL, services_of
from tests.support.sound import s16
from tests.support.virtual import run


@dataclass
class World:
    """A server with the scripted engine."""

    services: Services
    engine: FakeRecognizer
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def client(self, buffer: int = 4) -> MemoryChannel:
        channel = MemoryChannel(buffer)
        self.connect(channel)
        return channel

    def connect(self, channel: MemoryChannel) -> asyncio.Task[None]:
        """Serve whoever holds the other end."""
        self.tasks.append(asyncio.create_task(Connection(channel, JsonCodec(), self.services).run()))
        return self.tasks[-1]

    async def all_done(self) -> None:
        async with asyncio.timeout(3600):
            await asyncio.gather(*self.tasks)
            while self.services.sessions.active:  # noqa: ASYNC110 - virtual time costs nothing
                await asyncio.sleep(1)


def serving(
    body: Callable[[World], Awaitable[None]],
    script: FakeScript | None = None,
    *,
    recognizer: Recognizer | None = None,
    encoder: SpeakerEncoder | None = None,
    **limits: Any,
) -> None:
    """`recognizer` takes the scripted engine's place; with an `encoder` voices are told apart."""

    async def main() -> None:
        engine = FakeRecognizer(script or FakeScript(delay_s=0.05))
        services = services_of(recognizer or engine, LimitSettings(**limits), encoder=encoder, **VIRTUAL)
        world = World(services, engine)
        await body(world)
        await world.all_done()
        await services.dispatcher.close()
        assert services.sessions.active == 0
        assert len(asyncio.all_tasks()) == 1

    run(main())


async def live(channel: MemoryChannel, audio: Audio, packet: int = 1600) -> None:
    """Send as a microphone does."""
    for start in range(0, audio.size, packet):
        channel.say(s16(audio[start : start + packet]))
        await asyncio.sleep(packet / 16_000)


def committed(channel: MemoryChannel) -> list[str]:
    """The transcript as a client keeps it; fails where committed words change."""
    words: dict[int, str] = {}
    for segment in channel.of("segment"):
        for index, word in enumerate(segment["words"], segment["first_word"]):
            assert words.setdefault(index, word["text"]) == word["text"]
    return [words[index] for index in sorted(words)]


def check_numbers(channel: MemoryChannel) -> None:
    """Each message has a greater number than those before, but for those that have none of their own: they
    carry the newest that the client has."""
    newest = channel.sent[0]["seq"]
    for message in channel.sent[1:]:
        if message["type"] == "ack":
            assert message["seq"] == newest
        elif message["type"] == "error":
            assert message["seq"] >= newest
        else:
            assert message["seq"] > newest
        newest = message["seq"]


def check_end(channel: MemoryChannel, samples: int | None = None) -> dict[str, Any]:
    """Numbers that grow, and a receipt that covers every sample once."""
    check_numbers(channel)
    (end,) = channel.of("end")
    receipt: dict[str, Any] = end["receipt"]
    at = 0
    for span in receipt["spans"]:
        assert span["start"] == at
        at = span["end"]
    assert at == receipt["samples"]
    assert samples is None or samples == at
    assert receipt["text_samples"] + receipt["silence_samples"] + receipt["gap_samples"] == at
    return receipt


START = {"type": "start"}
END = {"type": "end"}
