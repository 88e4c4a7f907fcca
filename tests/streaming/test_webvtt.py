"""WebVTT that grows: each cue once, none that changes, and the end with the session."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.aio import Stream, connect
from streaming.kept.log import Log
from streaming.sessions.ports import Unrecorded
from streaming.sessions.registry import Entry, Outcome
from streaming.web import webvtt
from streaming.wire.cues import OVERHANG_MS
from streaming.wire.growing import GrowingCues
from streaming.wire.messages import Named, Segment, Start, Word
from streaming.wire.render import cues as whole
from streaming.wire.render import joined
from tests.support.keys import READ, SPEAK, bearer, locked
from tests.support.server import Running, server
from tests.support.sound import s16, speech
from tests.support.world import World, serving


def said(texts: str, first: int = 0, at_ms: int = 0) -> tuple[Word, ...]:
    return tuple(
        Word(text, at_ms + 300 * n, at_ms + 300 * n + 250) for n, text in enumerate(texts.split(), first)
    )


def state(id: int, words: tuple[Word, ...], *, first: int = 0, final: bool = False, **more: Any) -> Segment:
    begin, end = (words[0].start_ms, words[-1].end_ms) if words else (0, 0)
    speaker = more.pop("speaker", None)
    return Segment(0, id, 1, first, begin, end, speaker, joined(words), words, "", final, **more)


WORDS = said(
    "We walked the whole way home from the old station, hand in hand, and nobody spoke a word of it."
)


def test_a_cue_comes_when_it_is_whole_and_never_again() -> None:
    cues = GrowingCues()
    given = []
    for count in range(1, len(WORDS) + 1):
        cues.receive(state(1, WORDS[:count]))
        given += cues.take(WORDS[count - 1].end_ms)
    assert given != []
    assert not set(joined(WORDS).split()) <= set(" ".join(" ".join(c.lines) for c in given).split())
    cues.receive(state(1, WORDS, final=True))
    given += cues.take(float("inf"))
    assert cues.take(float("inf")) == []
    assert [c.lines for c in given] == [c.lines for c in whole([state(1, WORDS, final=True)])]
    assert not cues._segments, "of hours of talk only what waits is kept"


def test_the_last_cue_of_a_sentence_waits_for_no_more_than_its_end() -> None:
    cues = GrowingCues()
    cues.receive(state(1, WORDS[:2], final=True))
    assert cues.take(WORDS[1].end_ms) == []
    (cue,) = cues.take(WORDS[1].end_ms + OVERHANG_MS)
    assert WORDS[1].end_ms < cue.end_ms <= WORDS[1].end_ms + OVERHANG_MS
    cues.receive(state(2, said("Who?", 3, 2000), first=3, final=True))
    cues.receive(state(3, said("Me.", 4, 2600), first=4, final=True))
    first, second = cues.take(float("inf"))
    assert cue.end_ms <= first.start_ms < first.end_ms <= second.start_ms


def test_who_speaks_is_who_it_is_by_then() -> None:
    cues = GrowingCues()
    cues.receive(state(1, WORDS[:2], final=True, speaker=2))
    cues.receive(Named(0, 2, "Ann"))
    cues.receive(state(2, said("Yes.", 2, 3000), first=2, final=True))
    assert [cue.speaker for cue in cues.take(float("inf"))] == ["Ann", "Unknown"]


@st.composite
def talks(draw: st.DrawFn) -> list[Segment]:
    """States of two tracks as they grow, mixed."""
    told: list[Segment] = []
    for track in (0, 1):
        first = at = 0
        for id in range(draw(st.integers(0, 3))):
            at += draw(st.integers(0, 4000))
            words = said(" ".join(draw(st.lists(st.sampled_from(["one", "two.", "of"]), min_size=1))))
            words = tuple(Word(w.text, w.start_ms + at, w.end_ms + at) for w in words)
            for count in sorted(draw(st.sets(st.integers(1, len(words)), max_size=3))):
                told.append(state(10 * track + id, words[:count], first=first, track=track))
            told.append(state(10 * track + id, words, first=first, track=track, final=True))
            first, at = first + len(words), words[-1].end_ms
    order = draw(st.permutations(range(len(told))))
    tracks = [[s for s in told if s.track == t] for t in (0, 1)]
    return [tracks[0 if told[n].track == 0 else 1].pop(0) for n in order]


@given(talks(), st.data())
def test_every_word_comes_once_in_order(talk: list[Segment], data: st.DataObject) -> None:
    cues, given = GrowingCues(), []
    for message in talk:
        cues.receive(message)
        if data.draw(st.booleans()):
            given += cues.take(message.end_ms)
    given += cues.take(float("inf"))
    assert sorted(" ".join(" ".join(c.lines) for c in given).split()) == sorted(
        " ".join(s.text for s in talk if s.final).split()
    )
    assert [c.start_ms for c in given] == sorted(c.start_ms for c in given)
    assert all(c.start_ms < c.end_ms for c in given)


CUE = re.compile(r"\n\d\d:\d\d:\d\d\.\d{3} --> \d\d:\d\d:\d\d\.\d{3}\n(.+)\n")


@asynccontextmanager
async def speaking(running: Running, **more: Any) -> AsyncIterator[Stream]:
    async with connect(running.http(""), Start(), **more) as stream:
        reading = asyncio.create_task(drained(stream))
        yield stream
        await stream.end()
        await reading


async def drained(stream: Stream) -> None:
    async for _ in stream:
        pass


def address(running: Running, stream: Stream) -> str:
    assert stream.ready is not None
    return running.http(f"/v1/sessions/{stream.ready.session}/live.vtt")


@pytest.mark.e2e
async def test_it_grows_while_people_speak_and_ends_with_the_session() -> None:
    async with server() as running, httpx.AsyncClient(timeout=20) as client:
        async with speaking(running) as stream:
            where = address(running, stream)
            async with client.stream("GET", where) as answer:
                assert answer.headers["content-type"] == "text/vtt; charset=utf-8"
                pieces = answer.aiter_text()
                assert await anext(pieces) == "WEBVTT\n"
                await stream.send(s16(speech("xxx......")))
                await stream.flush("all")
                first = await anext(pieces)
                assert CUE.findall(first) == ["zero one two"]
                await stream.send(s16(speech("xx")))
                await stream.end()
                rest = "".join([piece async for piece in pieces])
        assert CUE.findall(rest) == ["nine one-zero"]
        assert (await client.get(where)).text == "WEBVTT\n" + first + rest
        assert (await client.head(where)).status_code == 200
        assert (await client.get(running.http("/v1/sessions/none/live.vtt"))).status_code == 404


@pytest.mark.e2e
async def test_a_player_has_nothing_but_an_address() -> None:
    async with server(services=locked()) as running, httpx.AsyncClient() as client:
        async with speaking(running, key=SPEAK) as stream:
            where, ready = address(running, stream), stream.ready
            assert ready is not None
        assert (await client.get(where)).status_code == 401
        assert (await client.get(where, headers=bearer(SPEAK))).status_code == 403
        for secret in (ready.read_token, ready.token, READ):
            assert (await client.get(f"{where}?token={secret}")).text == "WEBVTT\n"
            assert (await client.get(where, headers=bearer(secret))).text == "WEBVTT\n"


@pytest.mark.e2e
async def test_readers_are_counted() -> None:
    async with server(max_readers=1) as running, httpx.AsyncClient() as client, speaking(running) as stream:
        where = address(running, stream)
        async with client.stream("GET", where):
            entry = running.services.sessions.find(where.split("/")[5])
            assert entry is not None
            assert entry.readers == 1
            refused = await client.get(where)
            assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        async with asyncio.timeout(10):
            while entry.readers:  # noqa: ASYNC110 - the server sees it when it sees it
                await asyncio.sleep(0.02)


async def test_silence_is_filled_with_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webvtt, "BEAT_S", 0.0)
    monkeypatch.setattr(webvtt, "LOOK_S", 0.001)
    said = webvtt._said(Log(), Entry("s"))
    assert [await anext(said) for _ in range(3)] == ["WEBVTT\n", webvtt.BEAT, webvtt.BEAT]
    await said.aclose()  # type: ignore[attr-defined]


class SlowDisk(Unrecorded):
    """Notes what is waited for; nothing is written before `written`."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.written = asyncio.Event()
        self.slow = True

    async def on_disk(self, seq: int) -> None:
        self.asked.append(seq)
        if self.slow:
            await self.written.wait()


def slow_disk() -> tuple[SlowDisk, Entry]:
    """A session that has ended, whose words are not written yet."""
    disk = SlowDisk()
    entry = Entry("s", recorder=disk)
    entry.put(state(1, WORDS, final=True))
    entry.finish(Outcome())
    return disk, entry


async def idle() -> None:
    """Let everybody go on who can."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_nobody_reads_what_a_crash_could_take_back() -> None:
    disk, entry = slow_disk()
    said = webvtt._said(entry.log, entry)
    assert await anext(said) == "WEBVTT\n"
    text = asyncio.ensure_future(anext(said))
    await idle()
    assert (disk.asked, text.done()) == ([1], False)
    disk.written.set()
    assert "We walked" in await text
    await said.aclose()  # type: ignore[attr-defined]


async def test_nobody_reads_what_another_process_does_not_know() -> None:
    disk, entry = slow_disk()
    said = webvtt._said(entry.log, entry)
    assert await anext(said) == "WEBVTT\n"
    text = asyncio.ensure_future(anext(said))
    await idle()
    entry.moved = True
    disk.written.set()
    with pytest.raises(StopAsyncIteration):
        await text


@pytest.mark.parametrize("version", ["2.3", "2.4"])
def test_who_takes_nothing_is_cut_off(version: str) -> None:
    async def body(world: World) -> None:
        entry = Entry("s")
        answer = webvtt._Growing(webvtt._said(entry.log, entry), world.services, entry, {})
        stuck = asyncio.Event()

        async def send(message: object) -> None:
            assert entry.readers == 1
            await stuck.wait()

        async def receive() -> dict[str, str]:
            await stuck.wait()
            return {"type": "http.disconnect"}

        began = asyncio.get_running_loop().time()
        scope = {"type": "http", "asgi": {"spec_version": version}}
        await answer(scope, receive, send)
        assert asyncio.get_running_loop().time() - began == pytest.approx(15)
        assert entry.readers == 0

    serving(body, slow_reader_s=15.0)
