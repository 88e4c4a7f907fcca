"""A connection that breaks costs nothing: the session says what it would have said."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clients.captions import Captions
from engine.fake import FakeEncoder, FakeScript, say
from streaming.audio.splice import Splice
from tests.support.comeback import Comeback
from tests.support.sound import expected, s16, speech
from tests.support.virtual import settle
from tests.support.world import END, START, World, check_numbers, live, serving

SLOTS = "xxx....xxxxxx...xx.x....xxxx.."


def audio(rate: int, channels: int) -> bytes:
    tone = speech(SLOTS, rate)
    if channels == 1:
        return s16(tone)
    other = np.roll(tone, len(tone) // 3)
    return s16(np.stack([tone, other], axis=1).ravel())


def said(captions: Captions) -> dict[str, Any]:
    """What a session comes to: its words with their times and speakers, and its account of the audio."""
    return {
        "words": [
            (s.track, s.speaker, s.name, word.text, word.start_ms, word.end_ms)
            for s in captions.ordered()
            for word in s.words
        ],
        "receipt": captions.receipt,
        "flushed": [flushed.sample for flushed in captions.flushed],
    }


def start_of(rate: int, channels: int) -> dict[str, Any]:
    tracks = {"tracks": [{"name": "Ann"}, {}]} if channels == 2 else {}
    return {"audio": {"sample_rate": rate, "channels": channels}, **tracks}


def undisturbed(rate: int, channels: int) -> dict[str, Any]:
    result: dict[str, Any] = {}

    async def body(world: World) -> None:
        client = Comeback(world, start_of(rate, channels), audio(rate, channels), 2 * channels, rate)
        await client.begin()
        await client.end()
        assert client.captions.faults == []
        result.update(said(client.captions))

    serving(body)
    return result


CASES = [(16_000, 1), (16_000, 2), (48_000, 1), (44_100, 2), (11_025, 1)]
WHOLE = {case: undisturbed(*case) for case in CASES}

cuts = st.lists(
    st.tuples(
        st.integers(1, 100_000),  # bytes sent before the cut
        st.booleans(),  # whether the server has read them
        st.integers(0, 5),  # messages lost on their way to the client
        st.sampled_from([0.0, 0.3, 7.0, 100.0]),  # seconds without a connection
        st.booleans(),  # whether the server knows that the old connection is dead
    ),
    max_size=5,
)


@settings(max_examples=60)
@given(st.sampled_from(CASES), cuts)
def test_cut_anywhere_and_resumed_a_session_says_what_it_would_have_said(
    case: tuple[int, int], steps: list[tuple[int, bool, int, float, bool]]
) -> None:
    rate, channels = case

    async def body(world: World) -> None:
        client = Comeback(world, start_of(rate, channels), audio(rate, channels), 2 * channels, rate)
        await client.begin()
        for size, read, lost, away_s, known in steps:
            while size > 0:
                await client.speak(min(size, 6401))
                size -= 6401
            if read:
                await settle()
            await client.come_back(away_s=away_s, lost=lost, cut=known)
        await client.end()
        assert client.captions.faults == []
        assert client.captions.revised == 0
        assert said(client.captions) == WHOLE[case]
        assert client.channel.closed == (1000, "done")
        check_numbers(client.channel)

    serving(body)


def talked() -> bytes:
    """Three people, one of them twice, with a pause after each."""
    pieces = []
    for voice, seconds in ((1, 6), (2, 5), (1, 4), (3, 6)):
        pieces += [say(seconds * 16_000, voice), np.zeros(16_000, np.float32)]
    return s16(np.concatenate(pieces))


def told_apart(steps: list[tuple[int, int, float]]) -> dict[str, Any]:
    """What a conversation comes to, cut by `steps`: bytes sent before, messages lost, seconds away."""
    result: dict[str, Any] = {}

    async def body(world: World) -> None:
        client = Comeback(world, {"options": {"speakers": True}}, talked(), 2, 16_000)
        await client.begin()
        for size, lost, away_s in steps:
            for at in range(0, size, 6400):
                await client.speak(min(size - at, 6400))
                await settle()
            await client.come_back(away_s=away_s, lost=lost)
        await client.end()
        assert client.captions.faults == []
        result.update(said(client.captions))

    serving(body, encoder=FakeEncoder())
    return result


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(1, 400_000), st.integers(0, 5), st.sampled_from([0.0, 7.0, 100.0])),
        min_size=1,
        max_size=4,
    )
)
def test_speakers_survive_a_cut_anywhere(steps: list[tuple[int, int, float]]) -> None:
    whole = told_apart([])
    assert {speaker for _, speaker, *_ in whole["words"]} == {1, 2, 3}
    assert told_apart(steps) == whole


@given(
    st.sampled_from([8000, 11_025, 16_000, 22_050, 44_100, 48_000]),
    st.integers(1, 8),
    st.lists(st.tuples(st.integers(0, 700), st.booleans())),
)
def test_what_comes_twice_is_dropped_to_the_sample(
    rate: int, stride: int, steps: list[tuple[int, bool]]
) -> None:
    data = np.arange(1 << 14, dtype=np.uint16).tobytes()
    splice, got, at = Splice(stride, rate), b"", 0
    for size, cut in steps:
        got += splice.take(data[at : at + size])
        at += size
        if cut:
            splice.rejoin()
            at = -(-splice.next_sample * rate // 16_000) * stride
            assert at <= len(got)
    assert got == data[: len(got)]
    assert len(got) == splice.samples * stride


def test_the_older_client_is_told_and_the_newer_goes_on() -> None:
    async def body(world: World) -> None:
        client = Comeback(world, {}, s16(speech("xx...xx...")), 2, 16_000)
        await client.begin()
        await client.speak(32_000)
        older = client.channel
        await client.come_back(cut=False)
        await settle()
        assert older.closed == (4409, "replaced")
        assert older.sent[-1]["code"] == "replaced"
        assert "retry_after_ms" not in older.sent[-1]
        older.say(s16(speech("x")))  # nobody listens any more
        await client.end()
        assert client.captions.committed.split() == expected("xx...xx...")
        assert client.captions.faults == []
        assert world.services.metrics.resumed.value() == 1
        assert world.services.metrics.parted.value(reason="replaced") == 1

    serving(body)


def test_a_client_that_stays_away_too_long_finds_the_session_finished() -> None:
    async def body(world: World) -> None:
        client = Comeback(world, {}, s16(speech("xx...xxx")), 2, 16_000)
        assert (await client.begin()).resume_ms == 30_000
        await client.speak(80_000)
        client.channel.cut()
        await asyncio.sleep(29)
        assert world.services.sessions.active == 1
        await asyncio.sleep(3)
        assert world.services.sessions.active == 0
        ready = await client.come_back()
        assert (ready.resumed, ready.next_sample) == (True, 40_000)
        await settle()
        client.hear()
        assert client.channel.closed == (1008, "expired")
        assert client.captions.committed.split() == expected("xx...")
        assert client.captions.receipt is not None
        assert client.captions.receipt.samples == 40_000
        assert client.captions.error is not None
        assert "start a new one" in client.captions.error.message

    serving(body, resume_s=30.0)


def test_without_a_window_a_lost_connection_ends_the_session() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START)
        await live(channel, speech("xx"))
        channel.cut()
        await asyncio.sleep(2)
        assert world.services.sessions.active == 0
        assert world.services.metrics.closed.value(code="1008", reason="expired") == 1

    serving(body, resume_s=0.0)


@pytest.mark.parametrize(
    "wrong", [{"token": "guess"}, {"session": "guess"}, {"token": "\ud800"}, {"next_sample": 99_999}]
)
def test_a_resume_that_cannot_be(wrong: dict[str, Any]) -> None:
    async def body(world: World) -> None:
        first, second = world.client(), world.client()
        first.say(START, s16(speech("xx")))
        await settle()
        ready = first.sent[0]
        second.say({"type": "resume", "session": ready["session"], "token": ready["token"], **wrong})
        await settle()
        (refusal,) = second.sent
        if wrong.get("token") == "\ud800":
            assert second.closed in [(4400, "malformed"), (4404, "resume_refused")]
        else:
            assert second.closed == (4404, "resume_refused")
            assert "start a new session" in refusal["message"]
        assert ready["token"] not in str(refusal)
        first.say(END)  # the session is not disturbed
        await world.all_done()
        assert first.closed == (1000, "done")

    serving(body)


def test_the_read_token_does_not_resume() -> None:
    async def body(world: World) -> None:
        first, second = world.client(), world.client()
        first.say(START)
        await settle()
        ready = first.sent[0]
        second.say({"type": "resume", "session": ready["session"], "token": ready["read_token"]})
        await settle()
        assert second.closed == (4404, "resume_refused")
        first.leave()

    serving(body)


def test_flushes_and_the_end_sent_again_are_known() -> None:
    async def body(world: World) -> None:
        client = Comeback(world, {}, s16(speech("xxxx")), 2, 16_000)
        await client.begin()
        await client.speak(32_000)
        client.channel.say({"type": "flush", "id": "a"})
        await settle()
        await client.come_back()
        await client.speak(32_000)
        client.channel.say({"type": "flush", "id": "a"}, {"type": "flush", "id": "b"}, END)
        await settle()
        await client.come_back()
        assert client.sent == 64_000
        client.channel.say(END)
        await world.all_done()
        client.hear()
        assert [(f.id, f.sample) for f in client.captions.flushed] == [("a", 16_000), ("b", 32_000)]
        assert client.channel.closed == (1000, "done")
        assert client.captions.faults == []

    serving(body, FakeScript(delay_s=2.0))


def test_a_connection_that_says_nothing_else_is_known_to_live_by_its_beat() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START, s16(speech("x.")))
        await asyncio.sleep(61)
        acks = channel.of("ack")
        assert 10 <= len(acks) <= 16
        assert {(ack["sample"], ack["durable"]) for ack in acks[2:]} == {(16_000, 16_000)}
        channel.say(END)

    serving(body)


def test_a_client_that_closes_its_stream_itself_is_not_waited_for() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START)
        await live(channel, speech("xx"))
        channel.leave()
        await asyncio.sleep(2)
        assert world.services.sessions.active == 0

    serving(body)
