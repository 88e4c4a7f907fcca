"""What a client asks for over HTTP: the turns of a session, which no message tells."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from clients import asking, replay
from clients.dialing import ClientError, Refused, Unreachable
from engine.fake import FakeEncoder, say
from streaming.wire.messages import AudioFormat, Limits, Ready
from streaming.wire.render import called
from tests.support.server import server
from tests.support.sound import s16, wav

pytestmark = pytest.mark.e2e

HZ = 16_000


def ready(session: str = "x") -> Ready:
    limits = Limits(1, 1, 1, 1)
    return Ready(0, session, 1, "fake", "slots", AudioFormat(), limits, 3000, 600, read_token="secret")


async def test_replay_writes_turns_that_the_voices_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody speaks, and another falls in: the overlap is in the turns and in no segment."""
    path = tmp_path / "two people.wav"
    parts = [say(3 * HZ, 0), say(HZ, 0, 1), say(3 * HZ, 1), np.zeros(HZ, np.float32)]
    path.write_bytes(wav(s16(np.concatenate(parts))))
    async with server(services={"encoder": FakeEncoder()}) as running:
        arguments = [str(path), "--url", running.http(""), "--speed", "max", "--format", "rttm"]
        status = await asyncio.to_thread(replay.main, arguments)
    said = capsys.readouterr()
    assert status == replay.EXIT_OK, said.err
    assert said.out.splitlines() == [
        "SPEAKER two_people 1 0.000 4.000 <NA> <NA> Speaker_1 <NA> <NA>",
        "SPEAKER two_people 1 3.000 4.000 <NA> <NA> Speaker_2 <NA> <NA>",
    ]


async def test_a_session_that_is_gone_is_told_and_the_segments_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(wav(s16(say(2 * HZ, 0))))

    async def gone(url: str, ready: Ready, format: str) -> str:
        return await real(url, asking_for(ready), format)

    def asking_for(found: Ready) -> Ready:
        return ready(f"{found.session}-gone")

    real = asking.transcript
    monkeypatch.setattr(asking, "transcript", gone)
    async with server() as running:
        arguments = [str(path), "--url", running.http(""), "--speed", "max", "--format", "rttm"]
        assert await asyncio.to_thread(replay.main, arguments) == replay.EXIT_OK
    said = capsys.readouterr()
    assert "a.wav: its RTTM has segments in place of turns, for http" in said.err
    assert "HTTP 404" in said.err
    assert "secret" not in said.err
    assert said.out.startswith("SPEAKER a 1 ")


async def test_whom_is_asked_and_what_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unreachable, match="does not answer"):
        await asking.transcript("http://127.0.0.1:9", ready(), "rttm")
    asked: list[bytes] = []

    async def answer(head: bytes, body: bytes = b"") -> str:
        async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 " + head + b"\r\nConnection: close\r\n\r\n" + body)
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(met, "127.0.0.1", 0) as place:
            port = place.sockets[0].getsockname()[1]
            return await asking.transcript(f"ws://127.0.0.1:{port}/v1/stream", ready("a/b"), "vtt")

    assert await answer(b"200 OK", b"WEBVTT\n") == "WEBVTT\n"
    assert b"GET /v1/sessions/a%2Fb/transcript.vtt HTTP" in asked[0]
    assert b"Authorization: Bearer secret" in asked[0]
    with pytest.raises(Refused, match="302"):  # a key is for its own server
        await answer(b"302 Found\r\nLocation: http://127.0.0.1:9/")
    monkeypatch.setattr(asking, "MOST_BYTES", 1000)
    with pytest.raises(ClientError, match="is over 1000 bytes"):
        await answer(b"200 OK", bytes(1001))


def test_a_recording_is_called_otherwise() -> None:
    line = "SPEAKER 0a1b 1 0.000 4.000 <NA> <NA> Zo\u00eb <NA> <NA>\n"
    assert called(line * 2, "my talk") == line.replace("0a1b", "my_talk") * 2
    assert called("", "my talk") == ""
