"""A server of our own: started, killed, frozen, left without disk; and what it holds, seen from outside."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from clients.asking import opener
from clients.launch import LaunchError, Server, free_port, serving

RESUME_S = 30.0
"""How long our servers keep sessions without a client: longer than any fault, short enough to wait for."""

# Who may come in under load is another question, and on a busy machine the answer would be nobody.
_SETTINGS = """
[server]
log_level = "warning"
keep_finished_s = 5.0
[journal]
path = "{folder}"
[admission]
on = false
[limits]
max_sessions = 2000
resume_s = {resume_s}
idle_timeout_s = 45.0
"""
_GAUGES = ("sessions_active", "queue_depth", "engine_running")
_COUNTS = ("tasks", "threads", "memory_blocks")


@dataclass(frozen=True, slots=True)
class Level:
    """What a server holds: gauges that are to be 0, counts that are to be what they were, open files, threads
    (those that are not Python's too), memory (bytes). None where that cannot be seen."""

    gauges: dict[str, float]
    counts: dict[str, float] = field(default_factory=dict)
    files: int | None = None
    threads: int | None = None
    rss: int | None = None


class Machine:
    """One server process after the other at one address, over one journal."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self._stack = AsyncExitStack()
        self._server: Server | None = None

    @property
    def url(self) -> str:
        return self._running.url

    @property
    def log(self) -> Sequence[str]:
        """The newest lines that the process printed."""
        return self._running.log

    async def start(self) -> None:
        """Start it; raises `LaunchError`."""
        self._server = await self._stack.enter_async_context(serving(self._arguments, journal=True))

    async def stop(self) -> None:
        """Let it drain and end."""
        await self._stack.aclose()
        self._server = None

    async def kill(self) -> None:
        """SIGKILL."""
        pid = self._running.pid
        os.kill(pid, signal.SIGKILL)
        while os.path.exists(f"/proc/{pid}"):  # noqa: ASYNC110, ASYNC240 - a kernel has no event for it
            await asyncio.sleep(0.02)
        await self.stop()

    async def freeze(self, seconds: float) -> None:
        """Stop it as a whole for a while: its clock jumps."""
        os.kill(self._running.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(self._running.pid, signal.SIGCONT)

    def full(self, *, full: bool) -> None:
        """Whether no file of it can grow or be written any more."""
        _, hard = resource.prlimit(self._running.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._running.pid, resource.RLIMIT_FSIZE, (0 if full else hard, hard))

    async def level(self) -> Level:
        """What it holds now."""
        pid = self._running.pid
        seen = await level(self.url)
        return Level(seen.gauges, seen.counts, *of_process(pid))

    @property
    def _running(self) -> Server:
        assert self._server is not None, "not started"
        return self._server


@asynccontextmanager
async def machine(*arguments: str) -> AsyncIterator[Machine]:
    """`seamscribe serve ARGUMENTS` with a journal of its own, at an address that stays; raises
    `LaunchError`."""
    with tempfile.TemporaryDirectory(prefix="seamscribe-chaos-") as folder:
        config = Path(folder) / "chaos.toml"
        config.write_text(_SETTINGS.format(folder=Path(folder) / "journal", resume_s=RESUME_S))
        made = Machine(["--config", str(config), "--port", str(free_port()), *arguments])
        try:
            await made.start()
            yield made
        finally:
            await made.stop()


async def level(url: str) -> Level:
    """What any server says of itself."""
    values = await metrics(url)
    gauges, counts = (
        {name: values.get(f"seamscribe_{name}", 0.0) for name in names} for names in (_GAUGES, _COUNTS)
    )
    return Level(gauges, counts)


async def metrics(url: str) -> dict[str, float]:
    """Prometheus values by name, labels included; raises OSError."""
    text = await asyncio.to_thread(_get, f"{url}/metrics")
    lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def of_process(pid: int) -> tuple[int, int, int]:
    """Its open files, threads and memory (bytes)."""
    status = Path(f"/proc/{pid}/status").read_text()
    threads, rss = (int(re.findall(rf"{key}:\s*(\d+)", status)[0]) for key in ("Threads", "VmRSS"))
    return len(os.listdir(f"/proc/{pid}/fd")), threads, rss * 1024


def _get(url: str) -> str:
    with opener(url).open(url, timeout=30) as reply:
        return str(reply.read().decode())


__all__ = ["RESUME_S", "LaunchError", "Level", "Machine", "level", "machine", "metrics", "of_process"]
