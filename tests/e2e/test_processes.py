"""`seamscribe serve --processes N`: one port, several processes, none of which is missed."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress

import httpx
import psutil
import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.e2e.test_serve import started, until_closed
from tests.support.sound import expected, s16, speech
from tests.support.waiting import until

pytestmark = pytest.mark.e2e


@pytest.fixture(autouse=True)
def crowds_welcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMSCRIBE_ADMISSION__ON", "false")


@asynccontextmanager
async def crew(count: int) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    process, url = await started("--processes", str(count))
    try:
        yield process, url
    finally:
        if process.returncode is None:
            process.kill()  # its children see that it is gone
        await process.communicate()


def children(process: asyncio.subprocess.Process) -> list[psutil.Process]:
    return list(psutil.Process(process.pid).children())


def held(child: psutil.Process) -> int:
    """Connections of clients."""
    return sum(c.status == psutil.CONN_ESTABLISHED for c in child.net_connections("tcp"))


async def opened(url: str) -> ClientConnection:
    socket = await connect(url)
    await socket.send(json.dumps({"type": "start"}))
    assert json.loads(await socket.recv())["type"] == "ready"
    return socket


async def said(socket: ClientConnection) -> list[str]:
    """The words that follow up to the end."""
    messages = [json.loads(data) async for data in until_closed(socket)]
    return [w["text"] for m in messages if m["type"] == "segment" and m["final"] for w in m["words"]]


async def test_clients_spread_over_the_processes_and_a_killed_one_takes_only_its_own() -> None:
    async with crew(2) as (process, url):
        sockets = [await opened(url) for _ in range(16)]
        first, second = children(process)
        spared = held(second)
        assert held(first) + spared == 16
        assert 1 <= spared <= 15
        first.kill()
        await until(lambda: sum(s.close_code is None for s in sockets) == spared)
        for socket in sockets:
            if socket.close_code is None:
                await socket.send(s16(speech("xxx...")))
                await socket.send('{"type": "end"}')
                assert await said(socket) == expected("xxx...")
                assert socket.close_code == 1000
        await until(lambda: len(children(process)) == 2)
        assert first.pid not in {child.pid for child in children(process)}


async def test_each_process_has_its_own_metrics_at_its_own_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the common one another answers each time, and every counter would jump."""
    first = free_ports(2)
    monkeypatch.setenv("SEAMSCRIBE_CLUSTER__PORT", str(first))
    async with crew(2) as (process, url), httpx.AsyncClient(trust_env=False) as asking:
        sockets = [await opened(url) for _ in range(12)]
        assert len(sockets) == 12

        async def live(number: int) -> int:
            text = (await asking.get(f"http://127.0.0.1:{first + number}/metrics")).text
            (found,) = re.findall(r"^seamscribe_sessions_active (\d+)$", text, re.MULTILINE)
            return int(found)

        shares = [await live(0), await live(1)]
        assert sum(shares) == 12
        assert [await live(0), await live(1)] == shares
        common = await asking.get(f"{url}/metrics".replace("ws://", "http://").replace("/v1/stream", ""))
        assert common.status_code == 409
        assert "cluster.port" in common.text
        # One that takes another's place takes its port too.
        gone = next(child for child in children(process) if first in listening_at(child))
        gone.kill()
        async with asyncio.timeout(30):
            while True:
                with suppress(httpx.TransportError):
                    assert await live(0) == 0
                    break
                await asyncio.sleep(0.1)


def free_ports(count: int) -> int:
    """The first of so many in a row."""
    while True:
        with ExitStack() as stack, suppress(OSError):
            first = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for more in range(1, count):
                stack.enter_context(socket.create_server(("127.0.0.1", first + more)))
            return int(first)


def listening_at(child: psutil.Process) -> set[int]:
    return {c.laddr.port for c in child.net_connections("tcp") if c.status == psutil.CONN_LISTEN}


async def test_sigterm_finishes_the_sessions_of_all() -> None:
    async with crew(2) as (process, url):
        sockets = [await opened(url) for _ in range(6)]
        for socket in sockets:
            await socket.send(s16(speech("xxx.")))
            while json.loads(await socket.recv())["type"] != "segment":
                pass
        process.send_signal(signal.SIGTERM)
        for socket in sockets:
            assert await said(socket) == expected("xxx.")
            assert socket.close_code == 1012
        _, log = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0
        assert b"Traceback" not in log


async def test_processes_end_with_a_parent_that_was_killed() -> None:
    async with crew(2) as (process, _):
        mine = children(process)
        process.kill()
        await until(lambda: not any(child.is_running() for child in mine))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--engine", "fake"), b"journal.url: 2 processes"),
        (("--engine", "sglang", "--no-journal"), b"engine.servers: 2 processes"),
        (("--engine", "fake", "--no-journal", "--model", "nobody"), b"engine.model"),
    ],
)
async def test_what_processes_cannot_share_is_refused(arguments: tuple[str, ...], why: bytes) -> None:
    pipe = asyncio.subprocess.PIPE
    command = ("-m", "streaming", "serve", "--port", "0", "--processes", "2", *arguments)
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=pipe, stderr=pipe)
    out, log = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, out) == (2, b"")
    assert why in log
