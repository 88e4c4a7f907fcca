"""A process that dies takes nothing along: its sessions go on in the next one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.fake import FakeEncoder, say
from streaming.access.auth import Caller
from streaming.access.keys import Scope
from streaming.access.quota import Quotas
from streaming.kept.log import Log
from streaming.kept.remembering import encode
from streaming.kept.restore import LOST
from streaming.kept.stored import Batch
from streaming.kept.transcripts import export
from streaming.sockets.connection import Connection
from streaming.wire.codec import JsonCodec
from streaming.wire.messages import Ended, Read
from tests.streaming.test_reader import reader, seen
from tests.streaming.test_resume import CASES, WHOLE, audio, said, start_of
from tests.support.channel import MemoryChannel
from tests.support.comeback import Comeback
from tests.support.keys import SPEAK, key
from tests.support.lives import Lives, living
from tests.support.sound import expected, s16, speech
from tests.support.virtual import settle
from tests.support.waiting import until

deaths = st.lists(
    st.tuples(
        st.integers(1, 90_000),  # bytes sent before the process dies
        st.integers(0, 5),  # messages lost on their way to the client
        st.sampled_from([0.0, 0.3, 7.0, 100.0]),  # seconds until the client is back
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60)
@given(st.sampled_from(CASES), deaths, st.sampled_from([0.0, 0.02, 0.1]))
def test_killed_anywhere_a_session_says_what_it_would_have_said(
    case: tuple[int, int], deaths: list[tuple[int, int, float]], lag_s: float
) -> None:
    """P1, P4, P6 over any number of deaths of the server, as the client's own reducer sees it."""
    rate, channels = case
    result: dict[str, Any] = {}

    async def body(world: Lives) -> None:
        world.journal.lag_s = lag_s
        client = Comeback(world, start_of(rate, channels), audio(rate, channels), 2 * channels, rate)
        await client.begin()
        for size, lost, away_s in deaths:
            for _ in range(size // 6400 + 1):
                await client.speak(6400)
            await world.die()
            world.journal.lag_s = lag_s
            ready = await client.come_back(away_s=away_s, lost=lost)
            assert ready.resumed
        await client.end()
        assert client.captions.faults == []
        result.update(said(client.captions))

    living(body)
    assert result["words"] == WHOLE[case]["words"]
    receipt, whole = result["receipt"], WHOLE[case]["receipt"]
    # A resampler that begins anew may be a sample off.
    assert abs(receipt.samples - whole.samples) <= len(deaths)
    assert (receipt.words, receipt.gap_samples) == (whole.words, 0)
    at = 0
    for span in receipt.spans:
        assert span.start == at < span.end
        at = span.end
    assert at == receipt.samples


SPOKEN = s16(speech("xxx...xxxx.."))


async def interrupted(world: Lives, data: bytes = SPOKEN, **start: Any) -> Comeback:
    """A client in the middle of its second segment when the process dies."""
    client = Comeback(world, start, data, 2, 16_000)
    await client.begin()
    while client.sent < len(data) * 3 // 4:
        await client.speak(3200)
    client.hear()
    await world.die()
    return client


async def closed(client: Comeback) -> None:
    while client.channel.closed is None:  # noqa: ASYNC110 - virtual time costs nothing
        await asyncio.sleep(0.1)


def stored(world: Lives, client: Comeback) -> list[Any]:
    assert client.captions.ready is not None
    found = world.store.load(client.captions.ready.session)
    assert found is not None
    return list(found.states)


def test_durable_is_what_a_restored_session_does_not_ask_for_again() -> None:
    async def body(world: Lives) -> None:
        client = await interrupted(world)
        (*_, ack) = client.channel.of("ack")
        assert 0 < ack["durable"] <= ack["sample"]
        ready = await client.come_back()
        assert ready.next_sample >= ack["durable"]
        assert ready.next_sample < ack["sample"], "what was being decoded is wanted again"
        await client.end()
        assert client.captions.committed.split() == expected("xxx...xxxx..")

    living(body)


def test_readers_are_there_again_before_the_speaker_is() -> None:
    async def body(world: Lives) -> None:
        client = await interrupted(world)
        ready = client.captions.ready
        assert ready is not None
        overlay = reader(world, ready.session, Read(ready.read_token))
        stranger = reader(world, ready.session, Read("guess"))
        await asyncio.sleep(0.1)  # what closes the open segment is on disk before it is told
        assert stranger.of("error")[0]["code"] == "read_refused"
        assert seen(overlay).committed == client.captions.committed
        await client.come_back()
        await client.end()
        await world.all_done()
        assert seen(overlay).committed.split() == expected("xxx...xxxx..")
        assert seen(overlay).faults == []

    living(body)


def test_to_whom_nobody_comes_back_is_given_its_receipt() -> None:
    async def body(world: Lives) -> None:
        client = await interrupted(world)
        (*_, ack) = client.channel.of("ack")
        await asyncio.sleep(121)
        *_, ended, error = stored(world, client)
        assert error.code == "expired"
        assert isinstance(ended, Ended)
        assert ended.receipt.samples >= ack["sample"]
        assert {span.cause for span in ended.receipt.spans if span.cover == "gap"} == {LOST}
        metrics = world.services.metrics
        assert metrics.gaps.value(cause=LOST) == 1
        assert metrics.gap_audio.value(cause=LOST) == pytest.approx(ended.receipt.gap_samples / 16_000)
        assert metrics.covered.value(cover="gap") == pytest.approx(ended.receipt.gap_samples / 16_000)
        assert world.journal.live == frozenset()
        # Who comes even later is told what became of it.
        ready = await client.come_back()
        assert ready.next_sample == ended.receipt.samples
        await closed(client)
        client.hear()
        assert client.captions.receipt == ended.receipt
        assert client.captions.faults == []

    living(body)


def test_who_finds_the_house_full_is_concluded_like_whoever_stays_away() -> None:
    async def body(world: Lives) -> None:
        client = await interrupted(world)
        other = Comeback(world, {}, SPOKEN, 2, 16_000)
        await other.begin()
        with pytest.raises(AssertionError, match="overloaded"):
            await client.come_back()
        assert len(world.journal.live) == 1, "the other one's"
        await asyncio.sleep(121)
        await other.end()
        *_, error = stored(world, client)
        assert error.code == "expired"

    living(body, max_sessions=1)


def test_the_receipt_is_there_though_the_process_died_on_sending_it() -> None:
    async def body(world: Lives) -> None:
        client = Comeback(world, {}, SPOKEN, 2, 16_000)
        await client.begin()
        while client.sent < len(SPOKEN):
            await client.speak(3200)
        client.channel.say({"type": "end"})
        await until(lambda: client.channel.of("end"))
        client.hear(lost=2)
        assert client.captions.receipt is None
        await world.die()
        await client.come_back(lost=2)
        await closed(client)
        client.hear()
        assert client.captions.receipt is not None
        assert client.channel.closed[0] == 1000
        assert client.captions.committed.split() == expected("xxx...xxxx..")

    living(body)


def test_audio_that_the_client_has_no_more_is_a_gap() -> None:
    async def body(world: Lives) -> None:
        client = await interrupted(world)
        ready = client.captions.ready
        assert ready is not None
        client.channel = world.client()
        client.channel.say(
            {
                "type": "resume",
                "session": ready.session,
                "token": ready.token,
                "last_seq": client.captions.seq,
                "next_sample": 70_000,
            }
        )
        again = await client._met()
        assert again.next_sample >= 70_000
        client.sent = 2 * again.next_sample
        await client.end()
        receipt = client.captions.receipt
        assert receipt is not None
        (gap,) = [span for span in receipt.spans if span.cover == "gap"]
        assert (gap.end, gap.cause) == (again.next_sample, LOST)
        assert world.services.metrics.gaps.value(cause=LOST) == 1
        assert client.captions.faults == []

    living(body)


def test_what_was_said_but_never_reached_the_disk_is_not_taken_back() -> None:
    """A disk so slow that messages went out before they were on it: then there is nothing to go on with."""

    async def body(world: Lives) -> None:
        world.journal.lag_s = 0.0
        client = Comeback(world, {}, SPOKEN, 2, 16_000)
        ready = await client.begin()
        world.journal.lag_s = 1000.0
        while client.sent < len(SPOKEN) // 2:
            await client.speak(3200)
        client.hear()
        assert client.captions.committed
        acks = client.channel.of("ack")
        assert acks[-1]["sample"] > 0 == acks[-1]["durable"]
        await world.die()
        # Even where somebody else brought the session back before.
        reader(world, ready.session, Read(ready.read_token))
        await settle()
        client.channel = world.client()
        client.channel.say(
            {
                "type": "resume",
                "session": ready.session,
                "token": ready.token,
                "last_seq": client.captions.seq,
            }
        )
        await closed(client)
        assert client.channel.sent[-1]["code"] == "resume_refused"
        assert "last_seq" in client.channel.sent[-1]["message"]

    living(body)


def test_a_session_counts_against_its_key_in_the_next_process_too() -> None:
    async def body(world: Lives) -> None:
        client = Comeback(world, {}, SPOKEN, 2, 16_000)
        bot = Caller("bot", frozenset({Scope.SPEAK}))
        client.channel = MemoryChannel(4)
        world.tasks.append(
            asyncio.create_task(Connection(client.channel, JsonCodec(), world.services, bot).run())
        )
        await client.begin()
        assert world.services.quotas.sessions("bot") == 1
        while client.sent < len(SPOKEN) * 3 // 4:
            await client.speak(3200)
        await asyncio.sleep(1)
        before = client.sent // 2
        await world.die()
        second = Quotas({"bot": key(SPEAK, Scope.SPEAK, minutes_a_day=1 / 60)}, lambda: 0.0)
        world.services = replace(world.services, quotas=second)
        await client.come_back()
        assert second.sessions("bot") == 1
        await client.end()
        assert client.captions.error is not None
        assert client.captions.error.code == "key_limit"
        assert client.captions.receipt is not None
        assert 16_000 <= client.captions.receipt.samples - before <= 17_600, "counted once, sent twice"
        assert second.sessions("bot") == 0

    living(body)


def test_names_outlive_the_process() -> None:
    async def body(world: Lives) -> None:
        stereo = s16(speech("xxx...xxxx..")).ljust(4 * 96_000, b"\0")
        client = Comeback(
            world,
            {"audio": {"channels": 2}, "tracks": [{"name": "Ann"}, {}]},
            stereo,
            4,
            16_000,
        )
        ready = await client.begin()
        await client.speak(64_000)
        for number, name in ((1, "Bea"), (2, "Cid")):
            entry = world.services.sessions.find(ready.session)
            assert entry is not None
            entry.rename(number, name)
        await asyncio.sleep(0.1)
        await world.die()
        await client.come_back()
        await client.end()
        assert client.captions.names == {1: "Bea", 2: "Cid"}

    living(body)


def test_without_a_time_to_come_back_a_session_is_finished_at_once() -> None:
    async def body(world: Lives) -> None:
        client = await interrupted(world)
        await asyncio.sleep(1)
        ended = stored(world, client)[-2]
        assert isinstance(ended, Ended)

    living(body, resume_s=0)


def test_an_ended_session_may_still_be_named_in() -> None:
    """Nobody waits for a disk that has nothing more to write."""

    async def body(world: Lives) -> None:
        client = Comeback(world, {"tracks": [{}]}, SPOKEN, 2, 16_000)
        ready = await client.begin()
        await client.end()
        await world.die()
        overlay = reader(world, ready.session, Read(ready.read_token))
        await world.all_done()
        assert seen(overlay).committed.split() == expected("xxx...xxxx..")
        entry = world.services.sessions.find(ready.session)
        assert entry is not None
        entry.rename(1, "Ann")
        await asyncio.sleep(0.1)
        assert any(getattr(state, "name", None) == "Ann" for state in stored(world, client))
        assert world.services.metrics.journal_late.value() == 0

    living(body)


def talk(*turns: tuple[int, float]) -> bytes:
    """Who speaks for how many seconds, with a pause after each."""
    pieces = []
    for voice, seconds in turns:
        pieces += [say(round(seconds * 16_000), voice), np.zeros(16_000, np.float32)]
    return s16(np.concatenate(pieces))


def labels(client: Comeback) -> list[int | None]:
    """Who is said to speak, turn by turn."""
    return [s.speaker for s in client.captions.ordered() if s.words]


@pytest.mark.parametrize("forgotten", [False, True])
def test_voices_are_known_again_and_no_number_is_given_to_another(*, forgotten: bool) -> None:
    """Who speaks first in the next process was the second to speak before. Where the voices were lost, for
    another encoder is there now, everybody is somebody new."""

    async def body(world: Lives) -> None:
        data = talk((1, 6), (2, 6), (2, 6), (1, 6), (3, 6))
        client = Comeback(world, {"options": {"speakers": True}}, data, 2, 16_000)
        ready = await client.begin()
        while client.sent < 2 * 16_000 * 14:
            await client.speak(3200)
        await asyncio.sleep(3)
        client.hear()
        assert labels(client) == [1, 2]
        if forgotten:
            world.store.write(Batch(voices={ready.session: encode([], FakeEncoder().traits)}))
            world.journal.dead = True
        await world.die()
        await client.come_back()
        await client.end()
        assert client.captions.faults == []
        assert labels(client) == ([1, 2, 3, 4, 5] if forgotten else [1, 2, 2, 1, 3])

    living(body, encoder=FakeEncoder())


def log_of(world: Lives, session: str) -> Log:
    entry = world.services.sessions.find(session)
    assert entry is not None
    return entry.log


def turns(log: Log) -> list[tuple[float, float, str]]:
    """The session's RTTM: start and length in seconds, who."""
    lines = [line.split() for line in export(log, "rttm", "id").splitlines()]
    return [(float(fields[3]), float(fields[4]), fields[7]) for fields in lines]


TURNS = ((1, 20), (2, 20), (1, 10), (2, 20), (1, 10))
"""Who speaks for how many seconds; there is a second of silence after each."""


def speaker_at(second: float) -> int:
    for voice, length in TURNS:
        second -= length + 1
        if second < 0:
            return voice
    raise AssertionError("nobody speaks any more")


def test_a_turn_that_a_crash_cuts_is_one_voices_before_and_after_it() -> None:
    """Two people, and the process dies while the second one speaks again: what was settled keeps
    its speaker, the words after have theirs, and the turns of both lives are in the RTTM."""

    async def body(world: Lives) -> None:
        client = Comeback(world, {"options": {"speakers": True}}, talk(*TURNS), 2, 16_000)
        session = (await client.begin()).session
        while client.sent < 2 * 16_000 * 72:
            await client.speak(3200)
        client.hear()
        settled = {s.id: s for s in log_of(world, session).segments() if s.frozen is True}
        assert {s.speaker for s in settled.values()} == {1, 2}
        assert turns(log_of(world, session))[0] == (0.0, 20.0, "Speaker_1")
        await world.die()
        await client.come_back()
        await client.end()
        assert client.captions.faults == []
        after = {s.id: s for s in log_of(world, session).segments() if s.words}
        for id, segment in settled.items():
            assert (after[id].speaker, after[id].words) == (segment.speaker, segment.words)
        for segment in after.values():
            assert segment.speaker == speaker_at((segment.start_ms + segment.end_ms) / 2000)
        found = turns(log_of(world, session))
        assert found[0] == (0.0, 20.0, "Speaker_1")
        for start, length, who in found:
            assert who == f"Speaker_{speaker_at(start + length / 2)}"
        assert sum(length for _, length, _ in found) == pytest.approx(80, abs=2)

    living(body, encoder=FakeEncoder())
