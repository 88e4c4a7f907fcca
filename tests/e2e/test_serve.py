"""`seamscribe serve` as a process: the line it prints, SIGTERM, its log."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.support.sound import expected, s16, speech

pytestmark = pytest.mark.e2e


async def started(*arguments: str) -> tuple[asyncio.subprocess.Process, str]:
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "streaming",
            "serve",
            "--engine",
            "fake",
            "--no-journal",
            "--port",
            "0",
            *arguments,
        ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
    found = re.search(r"ws://[\d.]+:\d+/v1/stream", line)
    assert found, line
    assert "engine fake" in line
    return process, found.group()


async def until_closed(socket: ClientConnection) -> AsyncIterator[str | bytes]:
    with suppress(ConnectionClosed):
        while True:
            yield await socket.recv()


@pytest.mark.parametrize("log_format", ["text", "json"])
async def test_sigterm_finishes_running_sessions(tmp_path: Path, log_format: str) -> None:
    config = tmp_path / "server.toml"
    config.write_text(f'[server]\nlog_format = "{log_format}"\n', encoding="utf-8")
    process, url = await started("--config", str(config))
    async with connect(url) as socket:
        await socket.send(json.dumps({"type": "start"}))
        ready = json.loads(await socket.recv())
        await socket.send(s16(speech("xxx.")))
        # The first words say that the audio has arrived.
        while json.loads(await socket.recv())["type"] != "segment":
            pass
        process.send_signal(signal.SIGTERM)
        messages = [json.loads(data) async for data in until_closed(socket)]
        assert socket.close_code == 1012
        segments = [m for m in messages if m["type"] == "segment"]
        assert segments[-1]["final"]
        assert [w["text"] for w in segments[-1]["words"]] == expected("xxx.")
        assert [m["type"] for m in messages][-2:] == ["end", "error"]
        assert messages[-2]["receipt"]["samples"] == 32_000
    _, log = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0
    assert b"Traceback" not in log
    # Whoever knows a session's id may read its transcript.
    assert ready["session"].encode() not in log
    if log_format == "json":
        lines = [json.loads(line) for line in log.splitlines()]
        (ended,) = (line for line in lines if "ended" in line["message"])
        assert (ended["session"], ended["fields"]["reason"]) == (ready["session"][:8], "restarting")
    else:
        assert f"session {ready['session'][:8]} ended: restarting".encode() in log


async def test_interrupt_without_clients() -> None:
    process, _ = await started()
    process.send_signal(signal.SIGINT)
    _, log = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0
    assert b"Traceback" not in log


async def test_limits_come_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("[limits]\nmax_sessions = 1\n", encoding="utf-8")
    process, url = await started("--config", str(file))
    async with connect(url) as first:
        await first.send(json.dumps({"type": "start"}))
        await first.recv()
        with pytest.raises(InvalidStatus) as refused:
            await connect(url)
        assert refused.value.response.status_code == 503
        assert refused.value.response.headers["retry-after"] == "5"
        async with connect(f"{url}?resume=1") as second:
            await second.send(json.dumps({"type": "start"}))
            assert json.loads(await second.recv())["code"] == "overloaded"
            await second.wait_closed()
            assert second.close_code == 1013
    process.send_signal(signal.SIGTERM)
    await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0
