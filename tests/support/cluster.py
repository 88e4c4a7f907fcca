"""Server processes that share a Redis: real ones, on one port, with the scripted engine."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import psutil

from clients.aio import Stream

from .redis import redis_server
from .waiting import until

SERVE = ("-m", "streaming", "serve", "--port", "0", "--engine", "fake")


@dataclass
class Crew:
    """Several processes on one port."""

    url: str
    redis: str
    parent: psutil.Process

    def processes(self) -> list[psutil.Process]:
        return list(self.parent.children())


@asynccontextmanager
async def crew(count: int, redis: str, **environment: str) -> AsyncIterator[Crew]:
    """They listen when the block begins, and are gone after it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *SERVE, "--processes", str(count)),
        stdout=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "SEAMSCRIBE_JOURNAL__URL": redis,
            "SEAMSCRIBE_ADMISSION__ON": "false",
            **environment,
        },
    )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 90)).decode()
        found = re.search(r"http://[\d.]+:\d+", line)
        assert found, line
        yield Crew(found.group(), redis, psutil.Process(process.pid))
    finally:
        for child in psutil.Process(process.pid).children():
            with suppress(psutil.NoSuchProcess):
                child.send_signal(signal.SIGCONT)
        process.terminate()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 30)
        if process.returncode is None:
            process.kill()
        await process.communicate()


def cut(stream: Stream) -> None:
    """The client's line breaks."""
    stream._socket.transport.abort()


__all__ = ["Crew", "crew", "cut", "redis_server", "until"]
