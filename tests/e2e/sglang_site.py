"""SGLang itself on the CPU, started once for several tests: a server, or an engine in this process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from engine.policies.opening import open_serving
from engine.sglang.client import ClientSettings, SglangRecognizer
from engine.sglang.flags import LaunchSettings, Machine, environment, plan_flags
from engine.sglang.http import HttpTransport
from engine.sglang.inproc import InprocTransport, open_inproc
from engine.sglang.launcher import server_command

ROOT = Path(__file__).resolve().parents[2]
SMALL = LaunchSettings(running=8, queued=64, chunk=256)
CPU = Machine()


def client(transport: Any, folder: Path, **more: Any) -> SglangRecognizer:
    settings = ClientSettings(model=folder.name, concurrency=8, **{"deadline_s": 120.0} | more)
    return SglangRecognizer(transport, open_serving(folder), settings)


@asynccontextmanager
async def server(folder: Path, port: int, **extra: Any) -> AsyncIterator[HttpTransport]:
    """`seamscribe engine`'s command as a child, and a transport to it."""
    facts = open_serving(folder).facts
    flags = {"enable_metrics": True, "port": port, **extra}
    command, added = server_command(folder, facts, CPU, SMALL, flags)
    assert command[0] == sys.executable
    with tempfile.TemporaryFile("w+") as log:
        child = await asyncio.to_thread(
            subprocess.Popen,
            command,
            env=os.environ | added | {"PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
        )
        transport = HttpTransport([f"http://127.0.0.1:{port}"])
        try:
            async with asyncio.timeout(240):
                while not await transport.healthy():
                    assert child.poll() is None, (log.seek(0), log.read()[-4000:])[1]
                    await asyncio.sleep(0.5)
            yield transport
        finally:
            await transport.close()
            child.terminate()
            await asyncio.to_thread(child.wait, 60)


def engine(folder: Path, **extra: Any) -> InprocTransport:
    """An engine in this process; blocks until it runs."""
    facts = open_serving(folder).facts
    flags = plan_flags(facts, CPU, SMALL) | {"model_path": str(folder)} | extra
    added = environment(facts, SMALL, CPU) | {"PYTHONPATH": str(ROOT)}
    return open_inproc(flags, added)
