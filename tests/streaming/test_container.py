"""Recordings through a whole session: a thread of real PyAV, the real loop, a scripted engine."""

from __future__ import annotations

import asyncio
import sys
import threading

import numpy as np
import pytest

from clients.aio import Disconnected, Stream, connect
from clients.captions import Captions
from engine.fake import FakeDetector
from streaming.audio.intake import Intake
from streaming.wire.messages import AudioFormat, Encoding, Error, Flushed, Segment, Start, Track
from tests.support.recordings import packets, recorded, tone
from tests.support.server import server
from tests.support.sound import expected, speech

CONTAINER = AudioFormat(Encoding.CONTAINER)
SLOTS = "xx..xxx...x."


def spoken(kind: str) -> bytes:
    """What the scripted engine hears as `expected(SLOTS)`."""
    return recorded(kind, (speech(SLOTS) * 32767).astype(np.int16))


async def hear(stream: Stream) -> Captions:
    captions = Captions()
    async for message in stream:
        captions.receive(message)
    return captions


async def said(address: str, start: Start, *messages: bytes) -> Captions:
    async with connect(f"http://{address}", start) as stream:
        for message in messages:
            await stream.send(message)
        await stream.end()
        return await hear(stream)


@pytest.mark.e2e
@pytest.mark.parametrize("kind", ["webm", "ogg", "mp4", "flac", "wav"])
async def test_a_recording_gives_the_words_of_its_samples(kind: str) -> None:
    async with server() as running:
        captions = await said(running.address, Start(audio=CONTAINER), *packets(spoken(kind), 997))
    assert captions.error is None
    assert captions.receipt is not None
    # Encoders pad a frame at the end.
    assert 0 <= captions.receipt.samples - len(SLOTS) * 8000 < 2400
    assert [word.text for word in captions.transcript] == expected(SLOTS)


@pytest.mark.e2e
async def test_channels_are_people() -> None:
    start = Start(audio=AudioFormat(Encoding.CONTAINER, channels=2), tracks=(Track("Ann"), Track("Bob")))
    data = recorded(
        "flac", np.stack([(speech(s) * 32767).astype(np.int16) for s in ("xx..", "..xx")], axis=1)
    )
    async with server() as running:
        async with connect(f"http://{running.address}", start) as stream:
            await stream.send(data)
            await stream.end()
            found = [m async for m in stream if isinstance(m, Segment) and m.final and m.words]
        assert {(m.track, m.name) for m in found} == {(0, "Ann"), (1, "Bob")}
        captions = await said(running.address, start, tone("webm"))
    assert captions.error is not None
    assert (captions.error.code, captions.error.field) == ("bad_audio", "audio.channels")


@pytest.mark.e2e
async def test_flush_works_and_a_lost_connection_ends_the_session() -> None:
    async with server() as running:
        async with connect(f"http://{running.address}", Start(audio=CONTAINER)) as stream:
            assert stream.ready.resume_ms == 0
            await stream.send(spoken("webm"))
            await stream.flush("now")
            while not isinstance(await anext(stream), Flushed):
                pass
            stream._socket.transport.abort()
            with pytest.raises(Disconnected):
                await hear(stream)
        id = stream.ready.session
        entry = running.services.sessions.find(id)
        assert entry is not None
        async with asyncio.timeout(10):
            news = asyncio.Event()
            entry.waiting.add(news)
            while entry.log.receipt is None:
                await news.wait()
                news.clear()
        assert entry.log.receipt.gap_samples == 0


@pytest.mark.e2e
async def test_what_is_no_audio_ends_with_a_receipt_and_the_reason() -> None:
    async with server() as running:
        for data, field in ((b"<html>" * 100, "audio.encoding"), (bytes(10), "audio.encoding")):
            captions = await said(running.address, Start(audio=CONTAINER), data)
            assert captions.receipt is not None
            assert isinstance(captions.error, Error)
            assert (captions.error.code, captions.error.field) == ("bad_audio", field)
            assert captions.receipt.samples == 0


@pytest.mark.e2e
async def test_without_pyav_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    async with server() as running:
        with pytest.raises(Exception, match=r"audio.encoding: .* seamscribe\[files\]"):
            await said(running.address, Start(audio=CONTAINER), b"")


async def test_the_thread_ends_with_its_intake_wherever_it_stands() -> None:
    before = threading.active_count()
    for feed in (b"", tone("webm")[:300], tone("webm"), tone("flac", 8.0)):
        intake = Intake(CONTAINER, FakeDetector())
        async for _ in intake.feed(feed):
            break  # the rest is not wanted
        intake.close()
    for _ in range(100):
        if threading.active_count() <= before:
            break
        await asyncio.sleep(0.02)
    assert threading.active_count() <= before


async def test_memory_is_bounded_where_a_message_holds_much_audio() -> None:
    """Ten minutes in one message: what waits to be taken is a few seconds."""
    intake, frames = Intake(CONTAINER, FakeDetector(), inline=1 << 30), 0
    async for piece, voices in intake.feed(tone("ogg", 600.0)):
        assert piece[0].size == 320 * len(voices[0]) <= 16_000
        frames += len(voices[0])
    async for piece, _ in intake.drain():
        frames += piece[0].size // 320
    intake.close()
    assert abs(frames - 30_000) < 50
