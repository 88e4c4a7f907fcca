"""Connections cut by a proxy at any byte, on loopback: our client comes back by itself."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import numpy as np
import pytest
from websockets.asyncio.client import connect as open_socket

from clients import replay
from clients.aio import Refused, Stream, connect
from clients.captions import Captions
from clients.play import Pace, Playback, play
from engine.fake import FakeScript
from streaming.app import running
from streaming.core.settings import SessionSettings
from streaming.settings import EngineSettings, JournalSettings, Settings
from streaming.wire.codec import JsonCodec
from streaming.wire.messages import AudioFormat, End, Ended, Error, Resume, Start, Track
from tests.support.cutter import cutting
from tests.support.data import DATA, needs_data
from tests.support.server import listening, server
from tests.support.sound import expected, s16, speech

pytestmark = pytest.mark.e2e

CODEC = JsonCodec()
RECORDING = "utterances_en/librispeech-test-other/1688-142285-0001.flac"
SLOTS = "xxx...xxxx..xx...xxxxxx....x.xx..." * 2


async def played(url: str, start: Start, data: bytes) -> Playback:
    playback = Playback("a")
    pieces = [data[at : at + 3210] for at in range(0, len(data), 3210)]
    await play(playback, url, start, pieces, Pace(speed=20.0), lambda *_: None)
    assert playback.faults() == []
    assert playback.captions.revised == 0
    return playback


def words(playback: Playback) -> list[tuple[object, ...]]:
    return [
        (s.track, s.speaker, s.name, w.text, w.start_ms, w.end_ms)
        for s in playback.captions.ordered()
        for w in s.words
    ]


@pytest.mark.parametrize("seed", range(4))
async def test_cut_at_any_byte(seed: int) -> None:
    drawn = random.Random(seed)
    start, data = Start(), s16(speech(SLOTS))
    if seed % 2:
        start = Start(audio=AudioFormat(channels=2), tracks=(Track("Ann"), Track()))
        data = s16(np.stack([speech(SLOTS), speech(SLOTS[9:] + SLOTS[:9])], axis=1).ravel())
    async with server(FakeScript(delay_s=0.01)) as running_:
        plain = await played(running_.http(""), start, data)
        # The first lives to say `ready`; the others may be cut inside their handshakes.
        after: list[tuple[int | None, int | None]] = [(None, drawn.randrange(1500, 3000))]
        for _ in range(8):
            up, down = drawn.randrange(50, 120_000), drawn.randrange(50, 4000)
            after.append((up, None) if drawn.random() < 0.5 else (None, down))
        async with cutting(running_.address, after) as cutter:
            playback = await played(cutter.url, start, data)
        assert cutter.cuts >= 5
        assert playback.resumes >= 3
        assert words(playback) == words(plain)
        assert playback.captions.receipt == plain.captions.receipt


async def read(stream: Stream) -> None:
    async for _ in stream:
        pass


async def test_a_session_that_is_gone_is_told_as_such() -> None:
    async with server() as running_, cutting(running_.address, [(40_000, None)]) as cutter:
        async with connect(cutter.url) as stream:
            entry = running_.services.sessions.find(stream.ready.session)
            assert entry is not None
            entry.token_digest = b"of another one"
            await stream.send(s16(speech("xxxxx")))
            with pytest.raises(Refused, match="start a new session") as caught:
                await read(stream)
        assert not caught.value.retryable
        assert cutter.connections == 2


async def test_a_client_that_was_replaced_does_not_come_back() -> None:
    async with server() as running_, connect(running_.http("")) as stream:
        await stream.send(s16(speech("xx")))
        resume = Resume(stream.ready.session, stream.ready.token)
        async with open_socket(running_.stream) as newer:
            await newer.send(CODEC.encode_client(resume))
            messages = [message async for message in stream]
            assert isinstance(messages[-1], Error)
            assert messages[-1].code == "replaced"
            await newer.send(CODEC.encode_client(End()))
            last = [CODEC.decode_server(text) async for text in newer][-1]
            assert isinstance(last, Ended)
            assert last.receipt.samples == 16_000


async def test_readers_over_a_socket() -> None:
    async with server() as running_, connect(running_.http("")) as stream:
        await stream.send(s16(speech("xxx...")))
        base = f"ws://{running_.address}/v1/sessions/{stream.ready.session}/events"
        captions, by_message = Captions(), Captions()
        async with (
            open_socket(f"{base}?token={stream.ready.read_token}&after=0") as reader,
            open_socket(base) as other,
        ):
            await other.send(json.dumps({"type": "read", "token": stream.ready.read_token}))
            await stream.end()
            async for _ in stream:
                pass
            for socket, shown in ((reader, captions), (other, by_message)):
                async for text in socket:
                    shown.receive(CODEC.decode_server(text))
                assert socket.close_code == 1000
                assert shown.committed.split() == expected("xxx...")
                assert shown.faults == []


@needs_data
async def test_replay_of_a_recording_through_a_proxy_that_cuts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real engine, the command as it is run: the same transcript as without a cut."""
    recording = DATA / RECORDING
    # Without refreshes, whose timing may move a word, what is said depends on the audio alone.
    session = SessionSettings(refresh_s=1000.0, first_s=1000.0, max_delay_s=30.0)
    settings = Settings(
        session=session,
        engine=EngineSettings(model="tiny.en", threads=1),
        journal=JournalSettings(path=str(tmp_path)),
    )
    async with running(settings) as services, listening(services) as running_:

        async def replayed(url: str) -> str:
            arguments = [str(recording), "--url", url, "--speed", "4", "--format", "json"]
            status = await asyncio.to_thread(replay.main, arguments)
            said = capsys.readouterr()
            assert status == replay.EXIT_OK, said.err
            body = json.loads(said.out)
            return str(body["text"])

        plain = await replayed(running_.http(""))
        after = [(60_000, None), (31, None), (50_001, None), (None, 300), (90_000, None), (40_123, None)]
        async with cutting(running_.address, after) as cutter:
            cut = await replayed(cutter.url)
        assert cutter.cuts >= 5
        assert len(plain.split()) > 20
        assert cut == plain
