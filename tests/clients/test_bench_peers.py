"""One judge for everybody: what counts as committed, late and changed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection, serve

from clients.audio import RATE
from clients.bench.corpus import Clip
from clients.bench.load import Script
from clients.bench.offline import OfflineWord, Reading
from clients.bench.peers.command import held
from clients.bench.peers.judge import Heard, delays, judge, spoken
from clients.bench.peers.servers import WhisperLiveKit

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
    assert found.errors.count == 1
    assert found.cpu_s_per_audio_s == pytest.approx(0.2)
    assert (found.words, found.revised, found.streams) == (12, 0, 2)
    assert found.commit.p95 == pytest.approx(8.2)
    assert not found.holds(4.0)
    only = judge("x", [(SAID, good)], read, 1.4, 300.0)
    assert only.holds(4.0)
    assert held([only, found], "x", 4.0) == 1
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
