"""An engine that dies, stalls or answers garbage, seen from clients of our server on loopback: audio is
kept, the backlog decoded or declared lost with its cause, nothing committed changes, nothing hangs."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from clients.aio import connect
from engine.sglang.client import ClientSettings, SglangRecognizer
from engine.sglang.http import HttpTransport
from streaming.sessions import decoding
from streaming.wire.messages import Start
from tests.engine.sglang.scripted import site
from tests.engine.sglang.slots import (
    Fault,
    SlotsPolicy,
    SlotsServer,
    SlotsTransport,
    broken_characters,
    given_up,
    half_a_stream,
    no_end,
    not_http,
    raw,
    said,
    server_error,
    signs_of_life,
    unending_event,
    unending_text,
)
from tests.support.server import server
from tests.support.sound import expected, s16, speech
from tests.support.waiting import until
from tests.support.world import World, check_end, committed, serving
from tests.support.world import live as speak

from .sglang_scene import Client, scene

pytestmark = pytest.mark.e2e

FIRST, SECOND, THIRD = "xxxx......", "xxxxxx......", "xx.xxx...."
"""What each client says before, while and after the engine is ill."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "RETRY_S", 0.02)
    monkeypatch.setattr(decoding, "LONGEST_RETRY_S", 0.05)


def check(client: Client, *, gaps: set[str] | None = None) -> None:
    """Nothing committed changed, the receipt covers everything, and what it lacks is what `gaps` says."""
    captions = client.captions
    assert captions.faults == []
    assert captions.revised == 0
    assert captions.receipt is not None
    assert captions.receipt.samples == 8000 * len(FIRST + SECOND + THIRD)
    assert {gap.cause for gap in captions.gaps} == (gaps or set())
    assert "�" not in captions.committed


async def ill(fault: Fault, faults: int = 1_000_000, *, deadline_s: float = 1.0) -> tuple[list[Client], int]:
    """Two meetings in which the engine answers so many requests of the second part with `fault`. Also how
    many it was."""
    async with scene(deadline_s) as play:
        await play.say(FIRST, "first")
        await play.flushed("first")
        before = [client.words for client in play.clients]
        assert before == [expected(FIRST)] * 2
        play.slots.fail(fault, faults)
        await play.say(SECOND, "second")
        await play.flushed("second")
        play.slots.heal()
        assert [client.words[: len(before[0])] for client in play.clients] == before
        await play.say(THIRD, "third")
        await play.flushed("third")
    return play.clients, play.slots.failed


GARBAGE: dict[str, tuple[Fault, str]] = {
    "not json": (raw(b"data: {not json"), "garbage"),
    "not utf-8": (raw(b'data: {"text": "\xff\xfe"}'), "garbage"),
    "nested": (raw(b'data: {"a":' + b"[" * 200_000), "garbage"),
    "another object": (raw(b'data: {"hello": 1}'), "garbage"),
    "ids of text": (said({"output_ids": ["a"]}), "garbage"),
    "no fields": (said({}, {"finish_reason": 7}), "garbage"),
    "unknown end": (said({}, {"finish_reason": {"type": "banana"}}), "garbage"),
    "half a stream": (half_a_stream, "connection"),
    "no end": (no_end, "garbage"),
    "not http": (not_http, "connection"),
    "server error": (server_error, "engine"),
    "given up": (given_up, "aborted"),
    "unending event": (unending_event, "garbage"),
    "signs of life": (signs_of_life, "deadline"),
}


@pytest.mark.parametrize("kind", GARBAGE)
async def test_garbage_now_and_then_costs_no_word(kind: str) -> None:
    """However they fall on the two, no final fails too often."""
    clients, failed = await ill(GARBAGE[kind][0], decoding.RETRIES - 1)
    assert failed == decoding.RETRIES - 1
    for client in clients:
        check(client)
        assert client.words == expected(FIRST + SECOND + THIRD)


@pytest.mark.parametrize("kind", ["not json", "half a stream", "signs of life", "server error"])
async def test_garbage_without_end_is_a_gap_with_its_cause_and_nothing_else(kind: str) -> None:
    fault, cause = GARBAGE[kind]
    clients, _ = await ill(fault, deadline_s=0.1)
    for client in clients:
        check(client, gaps={cause})
        lost = set(expected(FIRST + SECOND)[len(expected(FIRST)) :])
        assert client.words == [w for w in expected(FIRST + SECOND + THIRD) if w not in lost]
        assert client.captions.receipt is not None
        assert client.captions.receipt.gap_samples >= 8000 * SECOND.count("x")


async def test_text_without_end_is_stopped_and_never_shown() -> None:
    clients, _ = await ill(unending_text)
    for client in clients:
        check(client, gaps={"loop"})
        assert all("th" not in word or word in expected("x" * 40) for word in client.words)


async def test_broken_characters_never_come_through() -> None:
    clients, _ = await ill(broken_characters)
    for client in clients:
        check(client)
        assert client.words == expected(FIRST + SECOND + THIRD)


async def test_a_killed_engine_costs_no_word_once_it_is_back() -> None:
    """However often a session asked in vain meanwhile: no engine began its task, so none failed it."""
    async with scene() as play:
        await play.say(FIRST, "first")
        await play.flushed("first")
        play.slots.fail(signs_of_life)
        await play.say(SECOND, "second")
        await until(lambda: play.slots.failed >= 2)
        await play.engine.kill()
        before = [client.words for client in play.clients]
        await until(lambda: play.retried() >= 12)
        assert [client.words for client in play.clients] == before
        assert all(client.captions.gaps == [] for client in play.clients)
        play.slots.heal()
        await play.engine.start()
        await play.flushed("second")
        await play.say(THIRD, "third")
        await play.flushed("third")
    for client in play.clients:
        check(client)
        assert client.words == expected(FIRST + SECOND + THIRD)


async def test_an_engine_that_stays_dead_is_a_gap_and_the_next_one_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoding, "OUTAGE_S", 0.3)
    async with scene() as play:
        await play.say(FIRST, "first")
        await play.flushed("first")
        await play.engine.kill()
        await play.say(SECOND, "second")
        await play.flushed("second")
        await play.engine.start()
        await play.say(THIRD, "third")
        await play.flushed("third")
    for client in play.clients:
        check(client, gaps={"unreachable"})
        assert client.words[: len(expected(FIRST))] == expected(FIRST)
        assert client.words[-1] == expected(FIRST + SECOND + THIRD)[-1]


async def test_a_stalled_engine_is_left_and_asked_again() -> None:
    """It takes requests and is silent, for longer than any of them may stay unanswered."""
    release = asyncio.Event()

    async def stall(_: object, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError):
            await release.wait()
        writer.close()

    async with scene() as play:
        await play.say(FIRST, "first")
        await play.flushed("first")
        play.slots.fail(stall)
        await play.say(SECOND, "second")
        await until(lambda: play.retried() >= 2)
        assert all(client.captions.gaps == [] for client in play.clients)
        assert len(play.engine.aborted) >= 2
        play.slots.heal()
        release.set()
        await play.flushed("second")
        await play.say(THIRD, "third")
        await play.flushed("third")
    for client in play.clients:
        check(client)
        assert client.words == expected(FIRST + SECOND + THIRD)


async def test_a_client_that_leaves_takes_its_running_decode_along() -> None:
    """It is aborted in the engine by its id; what was said is then decoded once more, for the record."""
    slots = SlotsServer(fault=signs_of_life, faults=1)
    async with site(slots) as engine:
        recognizer = SglangRecognizer(
            HttpTransport([engine.url]), SlotsPolicy(), ClientSettings(model="slots", deadline_s=30.0)
        )
        async with server(recognizer=recognizer) as running:
            async with connect(f"http://{running.address}", Start()) as stream:
                await stream.send(s16(speech("xxxx")))
                await until(lambda: bool(engine.asked))
                assert engine.aborted == []
            await until(lambda: engine.aborted == [engine.asked[0]["rid"]])
            await until(lambda: running.services.sessions.active == 0)
            entry = running.services.sessions.find(stream.ready.session)
            assert entry is not None
            assert [w.text for s in entry.log.segments() for w in s.words] == expected("xxxx")


def test_thirty_seconds_of_silence_of_the_engine_cost_no_word() -> None:
    """In virtual time, with the deadlines as they are shipped, while somebody goes on speaking."""
    slots = "xxxxx...xx.." * 12
    transport = SlotsTransport()
    recognizer = SglangRecognizer(transport, SlotsPolicy(), ClientSettings(model="slots", concurrency=4))

    async def body(world: World) -> None:
        channel = world.client()
        channel.say({"type": "start"})
        speaking = asyncio.create_task(speak(channel, speech(slots)))
        await asyncio.sleep(8)
        transport.awake.clear()
        before = committed(channel)
        await asyncio.sleep(30)
        assert committed(channel)[: len(before)] == before
        assert len(transport.aborted) > 1
        transport.awake.set()
        await asyncio.sleep(10)
        caught_up = committed(channel)
        assert len(caught_up) >= len(expected(slots[: 2 * 44]))
        await speaking
        channel.say({"type": "end"})
        await world.all_done()
        assert committed(channel) == expected(slots)
        assert check_end(channel, 8000 * len(slots))["gap_samples"] == 0

    serving(body, recognizer=recognizer)
