"""SGLang itself on the CPU, started once for several tests: a server, or an engine in this process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from clients.launch import free_port
from engine.policies.opening import open_serving
from engine.sglang.client import ClientSettings, SglangRecognizer
from engine.sglang.flags import LaunchSettings, Machine, environment, plan_flags
from engine.sglang.http import HttpTransport
from engine.sglang.http1 import Endpoint
from engine.sglang.inproc import InprocTransport, open_inproc
from engine.sglang.launcher import server_command

ROOT = Path(__file__).resolve().parents[2]
SMALL = LaunchSettings(running=8, queued=64, chunk=256)
CPU = Machine()
UP_S, ANSWER_S = 1200.0, 600.0
"""Until a server or a router serves, and until it answers: on a machine that has other work, or stands still
for minutes, too."""


def client(transport: Any, folder: Path, **more: Any) -> SglangRecognizer:
    settings = ClientSettings(model=folder.name, concurrency=8, **{"deadline_s": 120.0} | more)
    return SglangRecognizer(transport, open_serving(folder), settings)


class Child:
    """`seamscribe engine`'s command as a child process, with the engine's own counters switched on."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        # What it does is told at once, not every fifteen steps: `busy` asks for it.
        flags = {"enable_metrics": True, "load_snapshot_publish_interval": 1, "port": port}
        self._command, added = server_command(folder, open_serving(folder).facts, CPU, SMALL, flags)
        assert self._command[0] == sys.executable
        self._environment = os.environ | added | {"PYTHONPATH": str(ROOT)}
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{port}"
        self._asking = Endpoint(self.url)
        """On a connection that is kept: a decode may be over in a tenth of a second."""

    async def start(self) -> None:
        """Returns when it serves."""
        transport = HttpTransport([self.url])
        with tempfile.TemporaryFile("w+") as log:
            child = self._process = await asyncio.to_thread(
                subprocess.Popen,
                self._command,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            async with asyncio.timeout(UP_S):
                while not await transport.healthy():
                    assert child.poll() is None, (log.seek(0), log.read()[-4000:])[1]
                    await asyncio.sleep(0.25)
        await transport.close()

    @property
    def runs(self) -> bool:
        return self._process is not None

    async def busy(self) -> bool:
        """Whether it decodes now, as its scheduler says; one that was ended does not."""
        if not self.runs:
            return False
        _, answer = await self._asking.fetch("GET", "/v1/loads?include=core")
        return any(one["num_running_reqs"] for one in json.loads(answer)["loads"])

    async def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Signal the process and its workers, and wait."""
        child, self._process = self._process, None
        if child is not None:
            os.killpg(child.pid, how) if how is signal.SIGKILL else child.terminate()
            await asyncio.to_thread(child.wait, 60)
        self._asking.close()


class Router:
    """SGLang's router before `servers`, with more `flags`."""

    def __init__(self, servers: Sequence[str], flags: Sequence[str]) -> None:
        port, counts = free_port(), free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._command = (
            *(sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1"),
            *("--port", str(port), "--prometheus-host", "127.0.0.1", "--prometheus-port", str(counts)),
            *("--worker-urls", *servers, *flags),
        )
        self._http = httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=ANSWER_S)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Router]:
        """It serves when the block begins."""
        process = await asyncio.create_subprocess_exec(*self._command, stdout=subprocess.DEVNULL)
        try:
            async with self._http:
                async with asyncio.timeout(UP_S):
                    while not await self.ready():
                        assert process.returncode is None
                        await asyncio.sleep(0.1)
                yield self
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def ready(self) -> bool:
        """Whether it says that it has a server."""
        try:
            return (await self._http.get("/readiness")).status_code == 200
        except httpx.TransportError:
            return False

    async def servers(self) -> dict[str, bool]:
        """Whether each is well, by address."""
        return {one["url"]: one["is_healthy"] for one in await self._workers()}

    async def add(self, url: str) -> None:
        (await self._http.post("/workers", json={"url": url})).raise_for_status()

    async def remove(self, url: str) -> None:
        """It gets no new requests; those it has are answered."""
        (id,) = (one["id"] for one in await self._workers() if one["url"] == url)
        (await self._http.delete(f"/workers/{id}")).raise_for_status()

    async def _workers(self) -> list[dict[str, Any]]:
        return list((await self._http.get("/workers")).json()["workers"])


@asynccontextmanager
async def server(folder: Path) -> AsyncIterator[Child]:
    child = Child(folder)
    try:
        await child.start()
        yield child
    finally:
        await child.end()


@asynccontextmanager
async def command(*arguments: str) -> AsyncIterator[tuple[str, subprocess.Popen[str]]]:
    """`seamscribe serve` as a child: its address once it listens, and the process."""
    process = await asyncio.to_thread(
        subprocess.Popen,
        [sys.executable, "-m", "streaming", "serve", "--no-journal", "--port", "0", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(UP_S):
            line = ""
            while "listening on http://" not in line:
                line = await asyncio.to_thread(process.stdout.readline)
                assert line, process.poll()
        yield line.split("http://")[1].split()[0], process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.to_thread(process.wait, 60)
        process.stdout.close()


def engine(folder: Path, **extra: Any) -> InprocTransport:
    """An engine in this process; blocks until it runs."""
    facts = open_serving(folder).facts
    flags = plan_flags(facts, CPU, SMALL) | {"model_path": str(folder)} | extra
    added = environment(facts, SMALL, CPU) | {"PYTHONPATH": str(ROOT)}
    return open_inproc(flags, added)
