"""The wire on a real socket, read by independent libraries."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from engine.fake import FakeScript
from tests.support.packing import pack, unpack
from tests.support.server import server
from tests.support.sound import expected, s16, speech

pytestmark = pytest.mark.e2e

JSON = Subprotocol("seamscribe.v1.json")
MSGPACK = Subprotocol("seamscribe.v1.msgpack")


async def rest(socket: ClientConnection) -> list[dict[str, Any]]:
    """Every message until the close."""
    messages = []
    try:
        while True:
            data = await socket.recv()
            messages.append(json.loads(data) if isinstance(data, str) else unpack(data))
    except ConnectionClosed:
        return messages


def words(messages: list[dict[str, Any]]) -> list[str]:
    finals = [m for m in messages if m["type"] == "segment" and m["final"]]
    return [word["text"] for segment in finals for word in segment["words"]]


async def test_json() -> None:
    slots = "xxxx...xxx.."
    async with server() as running, connect(running.stream, subprotocols=[JSON]) as socket:
        assert socket.subprotocol == JSON
        await socket.send(json.dumps({"type": "start"}))
        data = s16(speech(slots))
        for start in range(0, len(data), 6401):
            await socket.send(data[start : start + 6401])
        await socket.send(json.dumps({"type": "flush", "id": "f"}))
        await socket.send(json.dumps({"type": "end"}))
        messages = await rest(socket)
        assert socket.close_code == 1000
        assert [m["seq"] for m in messages] == sorted(m["seq"] for m in messages)
        assert messages[0]["type"] == "ready"
        assert messages[0]["version"] == 1
        assert words(messages) == expected(slots)
        assert {"id": "f", "sample": 96_000} in [
            {"id": m["id"], "sample": m["sample"]} for m in messages if m["type"] == "flushed"
        ]
        assert messages[-1]["receipt"]["samples"] == 96_000


async def test_msgpack() -> None:
    slots = "xxx..."
    async with server() as running, connect(running.stream, subprotocols=[MSGPACK]) as socket:
        assert socket.subprotocol == MSGPACK
        await socket.send(pack({"type": "start", "audio": {"encoding": "pcm_f32le"}}))
        await socket.send(pack({"type": "audio", "data": speech(slots).astype("<f4").tobytes()}))
        await socket.send(pack({"type": "end"}))
        messages = await rest(socket)
        assert words(messages) == expected(slots)
        assert messages[-1]["type"] == "end"
        assert socket.close_code == 1000


async def test_transcripts_health_and_metrics() -> None:
    async with server() as running, httpx.AsyncClient() as http, connect(running.stream) as socket:
        await socket.send(json.dumps({"type": "start"}))
        ready = json.loads(await socket.recv())
        await socket.send(s16(speech("xx...")))
        await socket.send(json.dumps({"type": "flush", "id": "f"}))
        while json.loads(await socket.recv())["type"] != "flushed":
            pass
        path = running.http(f"/v1/sessions/{ready['session']}/transcript.")
        live = (await http.get(f"{path}json")).json()
        assert (live["text"], live["finished"], live["receipt"]) == ("zero one", False, None)
        assert (await http.get(f"{path}txt")).text == "zero one\n"
        assert (await http.get(f"{path}srt")).text.startswith("1\n00:00:00,")
        vtt = await http.get(f"{path}vtt")
        assert vtt.headers["content-type"] == "text/vtt; charset=utf-8"
        assert (await http.get(f"{path}doc")).status_code == 404
        assert (await http.get(running.http("/v1/sessions/none/transcript.txt"))).status_code == 404
        await socket.send(json.dumps({"type": "end"}))
        await rest(socket)
        await socket.wait_closed()
        assert (await http.get(f"{path}json")).json()["finished"] is True
        assert (await http.get(running.http("/healthz"))).text == "ok\n"
        assert (await http.get(running.http("/readyz"))).json()["ready"] is True
        metrics = (await http.get(running.http("/metrics"))).text
        assert "seamscribe_words_committed_total 2" in metrics
        assert "seamscribe_commit_delay_seconds_count 2" in metrics
        assert 'seamscribe_decodes_total{priority="final",finish="stop"}' in metrics


async def test_not_ready_when_full_or_draining() -> None:
    async with server(max_sessions=1) as running, httpx.AsyncClient() as http:
        async with connect(running.stream) as socket:
            await socket.send(json.dumps({"type": "start"}))
            await socket.recv()
            full = await http.get(running.http("/readyz"))
            assert (full.status_code, full.json()["reason"]) == (503, "full")
        assert await running.services.sessions.drain(5.0)
        draining = await http.get(running.http("/readyz"))
        assert (draining.status_code, draining.json()["reason"]) == (503, "draining")
        assert (await http.get(running.http("/healthz"))).status_code == 200


async def test_a_hundred_megabyte_frame(caplog: pytest.LogCaptureFixture) -> None:
    async with server() as running:
        async with connect(running.stream) as socket:
            await socket.send(json.dumps({"type": "start"}))
            with suppress(ConnectionClosed):
                await socket.send(b"\0" * 100_000_000)
            await socket.wait_closed()
            assert socket.close_code == 1009
            assert "exceeds limit" in (socket.close_reason or "")
        async with connect(running.stream) as socket:
            await socket.send(json.dumps({"type": "start"}))
            await socket.send(b"\0" * 1_500_000)
            messages = await rest(socket)
            assert messages[-1]["code"] == "too_big"
            assert "max_packet_bytes" in messages[-1]["message"]
            assert socket.close_code == 1009
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ("{", "malformed"),
        (b"\0\1", "start_expected"),
        ('{"type":"start","audio":{"encoding":"flac"}}', "unsupported_encoding"),
        ('{"type":"start","version":0}', "unsupported_version"),
    ],
)
async def test_refusals(first: str | bytes, code: str) -> None:
    async with server() as running, connect(running.stream) as socket:
        await socket.send(first)
        (error,) = await rest(socket)
        assert (error["type"], error["code"], socket.close_code) == ("error", code, 4400)
        assert socket.close_reason == code


async def test_broken_utf8_is_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with server() as running, connect(running.stream) as socket:
        await socket.send(b"\xff\xfe", text=True)
        assert await rest(socket) == []
        assert socket.close_code == 1007
    assert "Traceback" not in caplog.text


async def test_unknown_subprotocols_are_refused_and_never_echoed(caplog: pytest.LogCaptureFixture) -> None:
    async with server() as running:
        with pytest.raises(InvalidStatus) as caught:
            await connect(running.stream, subprotocols=[Subprotocol("secret-key")])
        response = caught.value.response
        assert response.status_code == 400
        assert b"seamscribe.v1.json" in response.body
        assert b"secret-key" not in response.body
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_wrong_path_is_told_the_right_one(caplog: pytest.LogCaptureFixture) -> None:
    async with server() as running, httpx.AsyncClient() as http:
        for path in ("/", "/v1/stream/", "/v1/nowhere?a=b", "/healthz"):
            with pytest.raises(InvalidStatus) as caught:
                await connect(f"ws://{running.address}{path}")
            assert caught.value.response.status_code == 404
            assert b"/v1/stream" in caught.value.response.body
        plain = await http.get(running.http("/v1/stream"))
        assert (plain.status_code, plain.headers["upgrade"]) == (426, "websocket")
        assert (await http.get(running.http("/v1/nothing"))).status_code == 404
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_handshake_too_large_is_answered() -> None:
    async with server() as running:
        with pytest.raises(InvalidStatus) as caught:
            await connect(f"{running.stream}?{'x' * 9000}")
        assert caught.value.response.status_code == 414
        with pytest.raises(InvalidStatus) as caught:
            await connect(running.stream, additional_headers=[(f"X-{i}", "y") for i in range(200)])
        assert caught.value.response.status_code == 431


async def test_a_client_that_reads_nothing_is_cut_off() -> None:
    async with server(slow_reader_s=0.5, max_packet_bytes=1 << 20) as running:
        reader, writer = await asyncio.open_connection(*running.address.split(":"), limit=1024)
        handshake = (
            f"GET /v1/stream HTTP/1.1\r\nHost: {running.address}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n"
        )
        writer.write(handshake.encode())
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(frame(1, b'{"type":"start"}'))
        # Each flush is answered by a message of its own with an id of 128 characters.
        flush = frame(1, json.dumps({"type": "flush", "id": "f" * 128}).encode())
        try:
            for _ in range(400):
                writer.write(flush * 200)
                await asyncio.wait_for(writer.drain(), 10)
                await asyncio.sleep(0)
        except (ConnectionError, TimeoutError):
            pass
        # The drain waits until the client is gone, and would give it much longer than it has.
        assert await running.services.sessions.drain(30.0)
        assert running.services.metrics.parted.value(reason="slow_reader") == 1
        writer.transport.abort()


def frame(opcode: int, payload: bytes) -> bytes:
    """A client's frame, masked with zeros."""
    size = len(payload)
    header = (
        bytes([0x80 | opcode, 0x80 | size]) if size < 126 else bytes([0x80 | opcode, 0xFE]) + size.to_bytes(2)
    )
    return header + bytes(4) + payload


async def test_faster_than_real_time_with_a_slow_engine() -> None:
    slots = ("x" * 8 + "...") * 20
    script = FakeScript(per_audio_s=0.01)
    async with server(script, max_backlog_s=4.0) as running, connect(running.stream) as socket:
        await socket.send(json.dumps({"type": "start"}))

        async def send() -> None:
            data = s16(speech(slots))
            for start in range(0, len(data), 64_000):
                await socket.send(data[start : start + 64_000])
            await socket.send(json.dumps({"type": "end"}))

        sending = asyncio.create_task(send())
        messages = await rest(socket)
        await sending
        assert words(messages) == expected(slots)
        assert messages[-1]["receipt"]["gap_samples"] == 0


async def test_streams_side_by_side() -> None:
    async with server(FakeScript(delay_s=0.01)) as running:

        async def one(slots: str) -> None:
            async with connect(running.stream) as socket:
                await socket.send(json.dumps({"type": "start"}))
                data = s16(speech(slots))
                for start in range(0, len(data), 3200):
                    await socket.send(data[start : start + 3200])
                await socket.send(json.dumps({"type": "end"}))
                assert words(await rest(socket)) == expected(slots)

        patterns = ["".join(np.random.default_rng(i).choice(["xx", "...."], 12)) + ".." for i in range(8)]
        await asyncio.gather(*map(one, patterns))
