"""Who is there, as readers are told it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from clients.captions import Captions
from streaming.kept.log import Log
from streaming.kept.stored import decode, encode
from streaming.kept.transcripts import export
from streaming.wire.codec import JsonCodec
from streaming.wire.messages import PARTICIPANTS, Participant, Read
from tests.streaming.test_reader import reader, seen
from tests.support.channel import MemoryChannel
from tests.support.sound import speech
from tests.support.world import END, START, World, live, serving


def presence(id: str, **more: Any) -> dict[str, Any]:
    return {"type": "presence", "id": id, **more}


def told(channel: MemoryChannel) -> list[dict[str, Any]]:
    return [{k: v for k, v in one.items() if k not in {"type", "seq"}} for one in channel.of("participant")]


def test_coming_and_going_is_told_with_its_time_and_only_where_it_is_news() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START, presence("a", name="Ann"))
        await live(channel, speech("x."))
        channel.say(presence("a", name="Ann"), presence("b"))
        await asyncio.sleep(1)
        channel.say(presence("b", name="Bob", speaker=2))
        await live(channel, speech("x."))
        channel.say(presence("a", name="Ann", present=False))
        await asyncio.sleep(1)
        assert told(channel) == [
            {"id": "a", "present": True, "at_ms": 0, "name": "Ann"},
            {"id": "b", "present": True, "at_ms": 1000},
            {"id": "b", "present": True, "at_ms": 1000, "name": "Bob", "speaker": 2},
            {"id": "a", "present": False, "at_ms": 2000, "name": "Ann"},
        ]
        late = reader(world, channel.sent[0]["session"], Read(channel.sent[0]["read_token"]))
        await asyncio.sleep(1)
        assert told(late) == told(channel)[2:]
        entry = world.services.sessions.find(channel.sent[0]["session"])
        assert entry is not None
        assert json.loads(export(entry.log, "json", entry.id))["participants"] == [
            told(channel)[3],
            told(channel)[2],
        ]
        channel.say(END)
        await world.all_done()
        known: Captions = seen(late)
        assert {one.id: one.present for one in known.participants.values()} == {"a": False, "b": True}
        assert known.faults == []

    serving(body)


def test_people_without_end_are_refused_with_the_remedy() -> None:
    async def body(world: World) -> None:
        channel = world.client(buffer=2 * PARTICIPANTS)
        channel.say(START, *(presence(str(n)) for n in range(PARTICIPANTS + 1)))
        await world.all_done()
        (error,) = channel.of("error")
        assert (error["code"], error["field"]) == ("too_many_participants", "id")
        assert len(told(channel)) == PARTICIPANTS

    serving(body)


def test_what_is_wrong_with_it_is_said() -> None:
    async def body(world: World) -> None:
        for wrong, field in ((presence(""), "id"), (presence("a", speaker=0), "speaker")):
            channel = world.client()
            channel.say(START, wrong)
            await world.all_done()
            (error,) = channel.of("error")
            assert error["field"] == field
            assert ": use " in error["message"]

    serving(body)


def test_it_is_kept_as_it_was_told() -> None:
    log = Log()
    log.put(Participant(0, "a", True, 5, "Ann"))
    log.put(Participant(0, "a", False, 9, "Ann"))
    state = log.state("participant:a")
    assert decode(encode(state), state.seq) == state == Participant(2, "a", False, 9, "Ann")
    again = Log()
    again.restore([state])
    assert again.participants["a"].present is False
    codec = JsonCodec()
    assert codec.decode_server(codec.encode(state)) == state
