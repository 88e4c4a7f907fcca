"""A client names the speakers of its own session on its own socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.channel import MemoryChannel
from tests.support.sound import s16, speech
from tests.support.world import END, World, serving

TWO: dict[str, Any] = {
    "type": "start",
    "audio": {"channels": 2},
    "tracks": [{"name": "Ann"}, {}],
}


def name(speaker: int, text: str) -> dict[str, Any]:
    return {"type": "name", "speaker": speaker, "name": text}


def names(channel: MemoryChannel) -> list[tuple[int, str]]:
    return [(named["speaker"], named["name"]) for named in channel.of("named")]


def test_tracks_get_names_while_the_session_goes_on() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(TWO, name(2, "Bob"), s16(speech("xx..").repeat(2)))
        await asyncio.sleep(1)
        assert names(channel) == [(1, "Ann"), (2, "Bob")]
        channel.say(name(2, "Bea"), name(1, ""))
        await asyncio.sleep(1)
        assert names(channel)[2:] == [(2, "Bea"), (1, "")]
        channel.say(END)
        await world.all_done()
        assert channel.closed == (1000, "done")
        assert {s["speaker"]: s.get("name") for s in channel.of("segment") if s["final"]}.keys() <= {1, 2}

    serving(body)


@pytest.mark.parametrize("number", [3, 9999])
def test_nobody_with_that_number(number: int) -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(TWO, name(number, "Eve"))
        await world.all_done()
        (error,) = channel.of("error")
        assert (error["code"], error["field"]) == ("unknown_speaker", "speaker")
        assert str(number) in error["message"]

    serving(body)


def test_a_name_comes_in_a_session_only() -> None:
    async def body(world: World) -> None:
        early, late = world.client(), world.client()
        early.say(name(1, "Ann"))
        late.say(TWO, s16(speech("xx..").repeat(2)), END, name(1, "Ann"))
        await world.all_done()
        assert [error["code"] for error in early.of("error")] == ["start_expected"]
        assert [error["code"] for error in late.of("error")] == ["after_end"]

    serving(body)
