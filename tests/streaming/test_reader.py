"""Readers of a session: what there is, then what comes, without cost to the speaker."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

from clients.captions import Captions
from streaming.sessions.ports import Unrecorded
from streaming.sessions.registry import MOVED, Entry
from streaming.settings import LimitSettings
from streaming.sockets.reader import LATEST, Reader
from streaming.sockets.writer import Writer
from streaming.wire.codec import JsonCodec
from streaming.wire.messages import Named, Read
from tests.support.channel import MemoryChannel
from tests.support.keys import ADMIN, READ, SPEAK, locked
from tests.support.sound import expected, speech
from tests.support.virtual import settle
from tests.support.world import END, START, World, check_numbers, live, serving

CODEC = JsonCodec()


def reader(world: World, id: str, read: Read | None, buffer: int = 4) -> MemoryChannel:
    channel = MemoryChannel(buffer)
    running = Reader(channel, CODEC, world.services, id, read)
    world.tasks.append(asyncio.create_task(running.run()))
    return channel


def seen(channel: MemoryChannel) -> Captions:
    captions = Captions()
    for message in channel.sent:
        captions.receive(CODEC.decode_server(json.dumps(message)))
    return captions


async def begun(world: World, slots: str) -> tuple[MemoryChannel, dict[str, Any]]:
    speaker = world.client()
    speaker.say(START)
    await live(speaker, speech(slots))
    ready: dict[str, Any] = speaker.sent[0]
    return speaker, ready


async def test_what_another_process_does_not_know_is_not_said() -> None:
    """A process that was frozen is told by the store, as it writes what it is about to say, that another has
    the session."""

    class Fenced(Unrecorded):
        async def on_disk(self, seq: int) -> None:
            entry.moved = True
            entry.finish(MOVED)

    entry, channel = Entry("s", recorder=Fenced()), MemoryChannel()
    for number in range(3):
        entry.put(Named(0, number, "Ann"))
    entry.moved = False
    await Writer(channel, CODEC, entry, LimitSettings()).run(lambda: None)
    assert channel.sent == []


def test_a_reader_gets_what_there_is_and_then_what_comes() -> None:
    async def body(world: World) -> None:
        speaker, ready = await begun(world, "xxx...")
        id, token = ready["session"], ready["read_token"]
        early = reader(world, id, Read(token))
        by_message = reader(world, id, None)
        by_message.say({"type": "read", "token": token})
        owner = reader(world, id, Read(ready["token"]))
        await settle()
        assert [m["type"] for m in early.sent[:2]] == ["ready", "segment"]
        assert not {"token", "read_token"} & set(early.sent[0])
        assert seen(early).committed.split() == expected("xxx")
        await live(speaker, speech("x...xx.."))
        later = reader(world, id, Read(token, after=seen(early).seq))
        speaker.say(END)
        await world.all_done()
        late = reader(world, id, Read(token))
        await world.all_done()
        for channel in (early, by_message, owner, late):
            captions = seen(channel)
            check_numbers(channel)
            assert captions.faults == []
            assert captions.committed.split() == seen(speaker).committed.split()
            assert captions.receipt == seen(speaker).receipt
            assert channel.closed == (1000, "done")
        assert len(later.sent) < len(early.sent)
        assert later.closed == (1000, "done")

    serving(body)


def test_a_slow_reader_costs_the_speaker_nothing_and_is_brought_up_by_the_newest_state() -> None:
    async def body(world: World) -> None:
        slots = "xxxx..." * 12
        speaker, ready = await begun(world, "x...")
        id, token = ready["session"], ready["read_token"]
        slow, stuck = (reader(world, id, Read(token), buffer=1) for _ in range(2))
        await settle()
        slow.stop_reading()
        stuck.stop_reading()
        for _ in range(4):
            await live(speaker, speech(slots[:21]))
            slow.read_again()
            await settle()
            slow.stop_reading()
        assert world.services.metrics.paused.value(reason="client") == 0
        slow.read_again()
        speaker.say(END)
        await world.all_done()
        assert stuck.aborted
        assert not slow.aborted
        assert seen(slow).faults == []
        assert seen(slow).committed == seen(speaker).committed
        assert len(slow.of("segment")) < len(speaker.of("segment")) / 2
        assert speaker.closed == (1000, "done")

    serving(body, slow_reader_s=15.0)


def test_who_may_not_read() -> None:
    async def body(world: World) -> None:
        speaker, ready = await begun(world, "x")
        id, token = ready["session"], ready["read_token"]
        unknown = reader(world, "nobody", Read(token))
        guess = reader(world, id, Read("guess"))
        speaking = reader(world, id, Read(token))
        wrong = reader(world, id, None)
        wrong.say(START)
        mute = reader(world, id, None)
        await settle()
        speaking.say(b"audio")
        await settle()
        readers = [reader(world, id, Read(token)) for _ in range(3)]
        await asyncio.sleep(11)
        for refused in (unknown, guess):
            assert refused.closed == (4404, "read_refused")
            assert token not in str(refused.sent)
        assert speaking.closed == (4400, "read_only")
        assert wrong.closed == (4400, "read_expected")
        assert mute.closed == (4408, "idle")
        assert [r.closed for r in readers] == [None, None, (1013, "too_many_readers")]
        readers[0].cut()
        await settle()
        another = reader(world, id, Read(token))
        await settle()
        assert another.closed is None
        speaker.say(END)
        await world.all_done()
        assert another.closed == (1000, "done")

    serving(body, max_readers=2)


def test_the_newest_session_is_read_by_who_may_read_any() -> None:
    async def body(world: World) -> None:
        early = reader(world, LATEST, Read("-"))
        first, a = await begun(world, "xx...")
        second, b = await begun(world, "xxx...")
        newest = reader(world, LATEST, Read("-"))
        await settle()
        assert newest.sent[0]["session"] == b["session"]
        entry = world.services.sessions.find(b["session"])
        assert entry is not None
        entry.recording = True
        assert world.services.sessions.newest() is world.services.sessions.find(a["session"])
        second.say(END)
        await asyncio.sleep(5)
        assert newest.closed == (1000, "done")
        then = reader(world, LATEST, Read("-"))
        await settle()
        assert then.sent[0]["session"] == a["session"]
        assert seen(then).committed.split() == expected("xx")
        first.say(END)
        await world.all_done()
        assert early.closed == (1013, "nothing_live")
        assert "try again in" in early.sent[0]["message"]

    serving(body)


def test_with_keys_the_newest_session_is_for_those_who_may_read() -> None:
    async def body(world: World) -> None:
        world.services = replace(world.services, **locked())
        speaker = world.client()
        speaker.say({**START, "token": SPEAK})
        await live(speaker, speech("xx..."))
        ready = speaker.sent[0]
        tried = {
            secret: reader(world, LATEST, Read(secret))
            for secret in (READ, ADMIN, SPEAK, "-", ready["token"], ready["read_token"])
        }
        await settle()
        speaker.say(END)
        await world.all_done()
        let_in = [secret for secret, channel in tried.items() if channel.closed == (1000, "done")]
        assert let_in == [READ, ADMIN]
        refused = {channel.closed for secret, channel in tried.items() if secret not in let_in}
        assert refused == {(4401, "unauthorized")}

    serving(body)


def test_readers_and_speakers_have_seats_for_as_long_as_they_are_there() -> None:
    async def body(world: World) -> None:
        speaker, ready = await begun(world, "xx...")
        sessions = world.services.sessions
        assert sessions.seated == 1
        reading = reader(world, ready["session"], Read(ready["read_token"]))
        refused = reader(world, ready["session"], Read("wrong"))
        await settle()
        assert sessions.seated == 2
        assert refused.closed is not None
        reading.leave()
        await settle()
        assert sessions.seated == 1
        speaker.leave()
        await settle()
        assert sessions.seated == 0

    serving(body)
