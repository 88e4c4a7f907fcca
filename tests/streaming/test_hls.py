"""Captions as HLS: segments that never change, cover everything, and end."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from clients.aio import connect
from streaming.web.hls import Hls
from streaming.wire.hls import HELD_MS, SEGMENT_MS, Segments
from streaming.wire.messages import Segment, Start
from tests.streaming.test_webvtt import drained, idle, said, slow_disk, state, talks
from tests.support.keys import SPEAK, locked
from tests.support.server import server
from tests.support.sound import s16, speech


@given(talks(), st.lists(st.integers(0, 9_000), max_size=20))
def test_a_listed_segment_never_changes_and_nothing_is_left_out(
    talk: list[Segment], steps: list[int]
) -> None:
    segments, now, seen = Segments(), 0, dict[int, str]()
    for message, step in zip(talk, [*steps, *[0] * len(talk)], strict=False):
        segments.receive(message)
        now += step
        segments.advance(now, over=False)
        for number in range(segments.listed):
            assert seen.setdefault(number, segments.segment(number, 0)) == segments.segment(number, 0)
        assert segments.listed <= max(0, now - HELD_MS) // SEGMENT_MS
    segments.advance(now, over=True)
    for number in range(segments.listed):
        assert seen.setdefault(number, segments.segment(number, 0)) == segments.segment(number, 0)
    # A cue stands in each segment that it reaches into.
    cues: Counter[str] = Counter()
    for text in seen.values():
        cues |= Counter(text.rstrip("\n").split("\n\n")[1:])
    told = " ".join(line for cue in cues.elements() for line in cue.split("\n")[1:]).split()
    words = sorted(" ".join(s.text for s in talk if s.final).split())
    assert sorted(told) == words
    playlist = segments.playlist("?token=t")
    assert playlist.count("#EXTINF:") == segments.listed > 0
    assert playlist.endswith("#EXT-X-ENDLIST\n")
    assert all(float(length) <= 6 for length in re.findall(r"#EXTINF:([\d.]+)", playlist))


def test_a_cue_stands_in_every_segment_that_it_reaches_into() -> None:
    segments = Segments()
    segments.receive(state(1, said("one two", at_ms=SEGMENT_MS - 200), final=True))
    segments.advance(3 * SEGMENT_MS + HELD_MS, over=False)
    assert ["one two" in segments.segment(n, 0) for n in range(segments.listed)] == [True, True, False]


def test_what_is_listed_stays_listed_and_the_last_is_as_long_as_was_heard() -> None:
    segments = Segments()
    segments.advance(SEGMENT_MS + HELD_MS, over=False)
    segments.advance(0, over=False)
    assert segments.listed == 1
    segments.advance(SEGMENT_MS + 2000, over=True)
    assert re.findall(r"#EXTINF:([\d.]+)", segments.playlist("")) == ["6.000", "2.000"]


async def test_no_player_sees_what_a_crash_could_take_back() -> None:
    disk, entry = slow_disk()
    services: Any = SimpleNamespace(sessions=SimpleNamespace(find={"s": entry}.get))
    scope = {"type": "http", "path_params": {"id": "s"}, "query_string": b"", "headers": []}
    answer = asyncio.create_task(Hls(services).playlist(Request(scope)))
    await idle()
    assert (disk.asked, answer.done()) == ([1], False)
    disk.written.set()
    assert b"captions/0.vtt" in (await answer).body


async def test_players_at_once_see_the_same_though_one_waits_for_the_disk_and_one_does_not() -> None:
    disk, entry = slow_disk()
    services: Any = SimpleNamespace(sessions=SimpleNamespace(find={"s": entry}.get))
    scope = {"type": "http", "path_params": {"id": "s", "number": "0"}, "query_string": b"", "headers": []}
    hls = Hls(services)
    first = asyncio.create_task(hls.playlist(Request(scope)))
    await idle()
    disk.slow = False  # as journals are once one has waited too long
    assert b"We walked" in (await hls.segment(Request(scope))).body
    disk.written.set()
    await first
    assert bytes((await hls.segment(Request(scope))).body).count(b"We walked") == 1


async def test_players_get_nothing_that_another_process_does_not_know() -> None:
    disk, entry = slow_disk()
    services: Any = SimpleNamespace(sessions=SimpleNamespace(find={"s": entry}.get))
    scope = {"type": "http", "path_params": {"id": "s"}, "query_string": b"", "headers": []}
    answer = asyncio.create_task(Hls(services).playlist(Request(scope)))
    await idle()
    entry.moved = True
    disk.written.set()
    assert (await answer).status_code == 404


@pytest.mark.e2e
async def test_a_player_reads_list_and_segments_with_one_token() -> None:
    async with server(services=locked()) as running, httpx.AsyncClient() as client:
        async with connect(running.http(""), Start(), key=SPEAK) as stream:
            reading, ready = asyncio.create_task(drained(stream)), stream.ready
            base = running.http(f"/v1/sessions/{ready.session}/captions")
            assert (await client.get(f"{base}.m3u8")).status_code == 401
            where = f"{base}.m3u8?token={ready.read_token}&mpegts=900000"
            first = await client.get(where)
            assert first.headers["content-type"] == "application/vnd.apple.mpegurl"
            assert "EXTINF" not in first.text
            await stream.send(s16(speech("xx" + "." * 30)))
            await stream.flush("all")
            await stream.end()
            await reading
        listed = (await client.get(where)).text
        assert listed.splitlines()[-1] == "#EXT-X-ENDLIST"
        segments = re.findall(r"^captions/.*$", listed, re.MULTILINE)
        assert len(segments) == 3
        told = (await client.get(running.http(f"/v1/sessions/{ready.session}/{segments[0]}"))).text
        assert told.startswith("WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:900000,LOCAL:00:00:00.000\n\n00:00:00.")
        assert told.endswith("\nzero one\n")
        with_token = f"?token={ready.read_token}"
        assert (await client.get(f"{base}/3.vtt{with_token}")).status_code == 404
        assert (await client.get(f"{base}/0.vtt")).status_code == 401
        assert (await client.get(f"{base}.m3u8{with_token}&mpegts=-1")).status_code == 400
