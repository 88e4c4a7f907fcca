"""One judge for everybody: what counts as committed, late and changed."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import re
import sys
import wave
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection, serve

from clients.audio import RATE
from clients.bench.corpus import Clip
from clients.bench.load import Script
from clients.bench.offline import OfflineWord, Reading
from clients.bench.peers import whisperlive
from clients.bench.peers.command import held, lineup, ratios
from clients.bench.peers.judge import Heard, delays, judge, spoken
from clients.bench.peers.servers import OURS, child, listens
from clients.bench.peers.sglang import ROUTE, Sglang
from clients.bench.peers.whisperlive import Segments, WhisperLive
from clients.bench.peers.whisperlivekit import WhisperLiveKit
from clients.launch import answers

CLIP = Clip("one", np.zeros(RATE, np.int16), "Good morning all", "en")
READING = Reading(
    "Good morning, all.",
    (OfflineWord("Good", 0.1, 0.3), OfflineWord("morning,", 0.3, 0.6), OfflineWord("all.", 0.6, 0.9)),
    "en",
)
SAID = Script(((0.5, CLIP), (1.0, CLIP)))


def read(_: Clip) -> Reading:
    return READING


def test_words_lie_on_the_streams_clock() -> None:
    assert [round(word.end_s, 2) for word in spoken(SAID, read)] == [0.8, 1.1, 1.4, 2.8, 3.1, 3.4]


def test_a_word_counts_from_when_it_stands_there_and_changes_count() -> None:
    heard = Heard()
    heard.tell("", "Good", 0.9)
    heard.tell("Good morning", "", 2.0)
    heard.tell("good, morning all", "", 3.0)
    assert (heard.first_s, heard.at_s, heard.revised) == (0.9, [2.0, 2.0, 3.0], 0)
    heard.tell("good evening all", "", 4.0)
    assert (heard.at_s, heard.revised) == ([2.0, 4.0, 4.0], 2)
    heard.tell("good", "", 5.0)
    assert (heard.words, heard.revised) == (["Good"], 4)


def test_delays_are_of_words_that_were_heard_offline_too() -> None:
    heard = Heard()
    heard.tell("Good morning you", "", 2.0)
    heard.tell("Good morning you Good morning all", "", 5.0)
    found = sorted(round(delay, 2) for delay in delays(heard, spoken(SAID, read)))
    assert found == [0.9, 1.2, 1.6, 1.9, 2.2]


def test_a_run_sums_up() -> None:
    good, late = Heard(sent_s=3.5), Heard(sent_s=3.5)
    good.tell("Good morning all Good morning all", "", 3.9)
    late.tell("Good morning all Good evening all", "", 9.0)
    found = judge("x", [(SAID, good), (SAID, late)], read, 1.4, 300.0)
    assert (found.errors.count, found.offline.count, found.offline.length) == (1, 0, 12)
    assert found.said[1] == ("Good morning all Good morning all", "Good morning all Good evening all")
    assert found.cpu_s_per_audio_s == pytest.approx(0.2)
    assert (found.words, found.revised, found.streams) == (12, 0, 2)
    assert found.commit.p95 == pytest.approx(8.2)
    assert not found.holds(4.0)
    only = judge("x", [(SAID, good)], read, 1.4, 300.0)
    assert only.holds(4.0)
    assert held([only, found], "x", 4.0) == 1
    mine = judge(OURS, [(SAID, good)] * 3, read, 1.4, 150.0)
    assert ratios([only, found], 4.0) == []
    assert ratios([only, found, mine], 4.0) == [
        "seamscribe holds 3 streams, x 1: 3.0 times as many",
        "  3 of ours / 1 of its: committed p50 1.00, p95 1.00, CPU 0.33, RSS 0.50",
    ]
    good.faults.append("lost")
    assert not judge("x", [(SAID, good)], read, 1.4, 300.0).holds(4.0)


async def test_whisperlivekits_lines_are_committed_and_its_buffer_is_not() -> None:
    came = bytearray()

    async def asr(line: ServerConnection) -> None:
        await line.send(json.dumps({"type": "config", "useAudioWorklet": True}))
        async for packet in line:
            if not packet:
                break
            assert isinstance(packet, bytes)
            came.extend(packet)
            await line.send(json.dumps({"lines": [], "buffer_transcription": "Good"}))
        lines = [{"text": "Good morning", "speaker": 1}, {"text": None}, {"text": " all", "speaker": 1}]
        await line.send(json.dumps({"lines": lines, "buffer_transcription": ""}))
        await line.send(json.dumps({"type": "ready_to_stop"}))

    async with serve(asr, "127.0.0.1", 0) as listening:
        port = next(iter(listening.sockets)).getsockname()[1]
        peer = WhisperLiveKit(Path("none"), Path("none"), "en")
        short = Script(((0.1, Clip("x", np.ones(RATE // 5, np.int16), "", "en")),))
        heard = await asyncio.wait_for(peer.speak(f"ws://127.0.0.1:{port}", short), 20)
    assert heard.faults == []
    assert heard.words == ["Good", "morning", "all"]
    assert len(came) == 2 * round(0.3 * RATE)
    assert heard.first_s is not None
    assert heard.sent_s == pytest.approx(0.3)


async def test_a_peer_that_breaks_off_is_a_fault() -> None:
    async def asr(line: ServerConnection) -> None:
        await line.close(1011)

    async with serve(asr, "127.0.0.1", 0) as listening:
        port = next(iter(listening.sockets)).getsockname()[1]
        peer = WhisperLiveKit(Path("none"), Path("none"), "en")
        heard = await asyncio.wait_for(peer.speak(f"ws://127.0.0.1:{port}", SAID), 20)
    assert heard.faults


SHORT = Script(((0.1, Clip("x", np.full(RATE // 5, 16384, np.int16), "", "en")),))


@asynccontextmanager
async def _live(answer: Callable[[ServerConnection, bytes], object]) -> AsyncIterator[str]:
    """A server that says what WhisperLive's says; `answer` is awaited for each packet."""

    async def handle(line: ServerConnection) -> None:
        options = json.loads(await line.recv())
        assert (options["language"], options["use_vad"]) == ("en", True)
        await line.send(json.dumps({"uid": options["uid"], "message": "SERVER_READY"}))
        async for packet in line:
            assert isinstance(packet, bytes)
            if packet == whisperlive.END:
                return
            await answer(line, packet)  # type: ignore[misc]

    async with serve(handle, "127.0.0.1", 0) as listening:
        yield f"ws://127.0.0.1:{next(iter(listening.sockets)).getsockname()[1]}"


def _segment(start: float, text: str, *, completed: bool) -> dict[str, object]:
    return {"start": f"{start:.3f}", "end": f"{start + 1:.3f}", "text": text, "completed": completed}


async def test_whisperlives_complete_segments_are_committed_and_its_open_one_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(whisperlive, "QUIET_S", 0.05)
    came: list[float] = []

    async def answer(line: ServerConnection, packet: bytes) -> None:
        samples = np.frombuffer(packet, "<f4")
        came.extend(samples)
        whole, rest = _segment(0, " Good", completed=True), _segment(1, " morning", completed=False)
        await line.send(json.dumps({"uid": "x", "segments": [rest] if len(came) < 2000 else [whole, rest]}))

    async with _live(answer) as url:
        heard = await asyncio.wait_for(WhisperLive(Path("x"), Path("x"), "en").speak(url, SHORT), 20)
    assert heard.faults == []
    assert (heard.words, heard.revised) == (["Good", "morning"], 0)
    assert len(came) == round(0.3 * RATE)
    assert came[-1] == 0.5
    assert heard.at_s[0] < 2.0


async def test_a_refusal_of_whisperlive_is_a_fault() -> None:
    async def answer(line: ServerConnection, packet: bytes) -> None:
        await line.send(json.dumps({"uid": "x", "status": "WAIT", "message": 3.0}))

    async with _live(answer) as url:
        heard = await asyncio.wait_for(WhisperLive(Path("x"), Path("x"), "en").speak(url, SHORT), 20)
    assert len(heard.faults) == 1


def test_segments_that_are_repeated_count_once() -> None:
    found = Segments()
    found.take([_segment(0, "a", completed=False)], 1.0)
    found.take([_segment(0, "a", completed=False)], 2.0)
    assert (found.complete, found.open, found.changed_s) == ([], "a", 1.0)
    found.take([_segment(0, "a", completed=True), _segment(1, "b", completed=False)], 3.0)
    found.take([_segment(0, "a", completed=True), _segment(1, "a", completed=True)], 4.0)
    assert (found.complete, found.open, found.changed_s) == (["a", "a"], "", 4.0)


@asynccontextmanager
async def _transcription(texts: list[str], first_s: float = 0.0, status: int = 200) -> AsyncIterator[str]:
    """An HTTP server that answers each window with the next text and how long it was; the first late."""
    asked = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if head.startswith("GET"):
            status_line, body = "200 OK", b"{}"
        else:
            assert head.startswith(f"POST {ROUTE} ")
            length = re.search(r"Content-Length: (\d+)", head)
            assert length
            form = await reader.readexactly(int(length[1]))
            assert b'name="language"\r\n\r\nen\r\n' in form
            with wave.open(io.BytesIO(form[form.index(b"RIFF") :])) as file:
                assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
                seconds = file.getnframes() / RATE
            text, late = texts[asked], 0.0 if asked else first_s
            asked += 1
            await asyncio.sleep(late)
            status_line, body = f"{status} X", json.dumps({"text": f"{text}{seconds:.1f}"}).encode()
        lead = f"HTTP/1.1 {status_line}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(lead.encode() + body)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_windows_are_committed_in_their_order_when_their_answer_comes() -> None:
    peer = Sglang(Path("x"), Path("x"), "en", 0.1)
    async with _transcription(["one ", "two ", "three "], first_s=0.5) as url:
        assert await asyncio.to_thread(answers, f"{url}/health")
        heard = await asyncio.wait_for(peer.speak(url, SHORT), 20)
    assert heard.faults == []
    assert heard.words == ["one", "0.1", "two", "0.1", "three", "0.1"]
    assert heard.revised == 0
    assert heard.sent_s == pytest.approx(0.3)
    assert heard.at_s == sorted(heard.at_s)
    assert heard.first_s == heard.at_s[0] > 0.5


async def test_a_window_that_is_not_answered_is_a_fault() -> None:
    async with _transcription(["one "], status=500) as url:
        heard = await asyncio.wait_for(Sglang(Path("x"), Path("x"), "en", 5.0).speak(url, SHORT), 20)
    assert heard.words == []
    assert len(heard.faults) == 1
    assert "500" in heard.faults[0]


async def test_a_server_that_ends_before_it_is_ready_says_so() -> None:
    with pytest.raises(OSError, match="status 3"):
        async with child([sys.executable, "-c", "raise SystemExit(3)"], lambda: False):
            pass
    assert not listens(1)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"whisperlive": Path("/none")}, "--whisperlive /none: no such program"),
        ({"sglang": Path(sys.executable), "windows": "5,x"}, "--windows 5,x: seconds"),
        ({"sglang": Path(sys.executable), "windows": "60"}, "--windows 60: use 1 to 30"),
        ({"streams": ""}, "name a peer"),
    ],
)
def test_what_cannot_be_measured_is_named(changed: dict[str, object], said: str) -> None:
    options = {"model": "tiny.en", "streams": "1", "peer_streams": "1", "windows": "5"}
    programs = {"whisperlivekit": None, "whisperlive": None, "sglang": None}
    with pytest.raises(ValueError, match=re.escape(said)):
        lineup(argparse.Namespace(**{**options, **programs, **changed}), "en")
