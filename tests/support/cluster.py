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

SERVE = ("-m", "streaming", "serve", "--port", "0")
FAKE = ("--engine", "fake")
UP_S = 600.0
"""Until they listen: two seconds, minutes on a machine that has other work or stands still."""


@dataclass
class Crew:
    """Several processes on one port."""

    url: str
    redis: str
    parent: psutil.Process

    def processes(self) -> list[psutil.Process]:
        return list(self.parent.children())


@asynccontextmanager
async def crew(count: int, redis: str, *arguments: str, **environment: str) -> AsyncIterator[Crew]:
    """They listen when the block begins, and are gone after it. `arguments` choose the engine, the scripted
    one where there are none."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *SERVE, "--processes", str(count), *(arguments or FAKE)),
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
        line = (await asyncio.wait_for(process.stdout.readline(), UP_S)).decode()
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


def owner(crew: Crew, session: str) -> psutil.Process:
    """The process that has the session: the one that listens where Redis says."""
    from streaming.cluster.redis_store import RedisStore

    store = RedisStore(crew.redis, "test")
    name = store.redis.hget(f"seamscribe:s:{session}", "owner").decode()
    address = store.redis.get(f"seamscribe:p:{name}").decode()
    store.close()
    port = int(address.rpartition(":")[2])
    for process in crew.processes():
        listens = {c.laddr.port for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
        if port in listens:
            return process
    raise AssertionError(f"nobody listens at {address}")


def cut(stream: Stream) -> None:
    """The client's line breaks."""
    stream._socket.transport.abort()


__all__ = ["Crew", "crew", "cut", "owner", "redis_server", "until"]
