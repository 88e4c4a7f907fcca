"""What a session held is free the moment it has ended: megabytes of audio are in no ring of references, for
the collector of a large process comes by every few hours."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from streaming.sessions.live import Live
from tests.support.channel import MemoryChannel
from tests.support.sound import speech
from tests.support.world import END, START, World, live, serving


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def leave(channel: MemoryChannel, how: str) -> None:
    match how:
        case "end":
            channel.say(END)
        case "leave":
            channel.leave()
        case "vanish":
            channel.cut()
        case "nonsense":
            channel.say({"type": "nonsense"})


TRACKS = {"tracks": [{}, {}], "audio": {"channels": 2}}


@pytest.mark.parametrize("how", ["end", "leave", "vanish", "nonsense"])
@pytest.mark.parametrize("start", [{}, TRACKS], ids=["one", "tracks"])
def test_an_ended_session_holds_no_audio(how: str, start: dict[str, Any]) -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say({**START, **start})
        await live(channel, speech("xxx..xx"))
        (entry,) = world.services.sessions._live.values()
        assert isinstance(entry.live, Live)
        held: list[Any] = [weakref.ref(entry.live), weakref.ref(entry.live._meeting)]
        leave(channel, how)
        await asyncio.sleep(60)
        assert entry.live is None
        assert [found() for found in held] == [None, None]

    serving(body, resume_s=10)
