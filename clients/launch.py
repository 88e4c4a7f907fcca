"""Our own commands as child processes: a server on a free loopback port, or one that ends by itself; and what
any server's start is waited for by."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import urllib.error
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from .asking import opener

_ENTRY = "from streaming.cli import main; raise SystemExit(main())"
_URL = re.compile(r"\bhttps?://[^\s/]+:\d+")
_KEPT_LINES = 40


class LaunchError(Exception):
    """The server did not come up; the text ends with its last lines."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running child: its base URL (http), process id, and the newest lines it printed."""

    url: str
    pid: int
    log: Sequence[str] = ()


def command(arguments: Sequence[str], patience_s: float) -> bool:
    """Run another `seamscribe` command; whether it succeeded in time. What it says of failures is shown."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ENTRY, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            timeout=patience_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


@asynccontextmanager
async def serving(
    arguments: Sequence[str] = (), *, start_s: float = 120.0, stop_s: float = 20.0, journal: bool = False
) -> AsyncIterator[Server]:
    """Run `seamscribe serve --port 0 ARGUMENTS` until the block ends; yields once it is ready.

    Sessions are kept on disk only with `journal`. `start_s` bounds the start (weights are loaded in it),
    `stop_s` the drain, after which it is killed.
    Raises `LaunchError`.
    """
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-c",
            _ENTRY,
            "serve",
            *([] if journal else ["--no-journal"]),
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            *arguments,
        ),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=1 << 20,
        start_new_session=True,  # Ctrl-C is ours to answer: the server is stopped after its clients
    )
    kept: deque[str] = deque(maxlen=_KEPT_LINES)
    reader: asyncio.Task[None] | None = None
    try:
        try:
            async with asyncio.timeout(start_s):
                url = await _announced(process, kept)
                reader = asyncio.create_task(_keep_reading(process, kept))
                await _ready(process, url)
        except (TimeoutError, LaunchError) as error:
            reason = f"not ready within {start_s:.0f} s" if isinstance(error, TimeoutError) else str(error)
            last = "".join(f"\n  {line}" for line in kept)
            raise LaunchError(f"the server did not start: {reason}{last}") from error
        yield Server(url, process.pid, kept)
    finally:
        await stop(process, stop_s)
        if reader is not None:
            await reader


async def _announced(process: asyncio.subprocess.Process, kept: deque[str]) -> str:
    """The base URL that the server prints once it listens."""
    assert process.stdout is not None
    while line := await process.stdout.readline():
        kept.append(line.decode("utf-8", "replace").rstrip())
        if found := _URL.search(kept[-1]):
            return found.group()
    raise LaunchError(f"it ended with status {await process.wait()}")


async def _keep_reading(process: asyncio.subprocess.Process, kept: deque[str]) -> None:
    """Drain the child's log, or a full pipe would stop it."""
    assert process.stdout is not None
    while line := await process.stdout.readline():
        kept.append(line.decode("utf-8", "replace").rstrip())


async def _ready(process: asyncio.subprocess.Process, url: str) -> None:
    while process.returncode is None:
        if await asyncio.to_thread(answers, f"{url}/readyz"):
            return
        await asyncio.sleep(0.1)
    raise LaunchError(f"it ended with status {process.returncode}")


def answers(url: str) -> bool:
    """Whether a GET of it succeeds within 5 s."""
    try:
        with opener(url).open(url, timeout=5) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def free_port() -> int:
    """A loopback port on which nobody listens now; somebody may the next moment."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


async def stop(process: asyncio.subprocess.Process, stop_s: float) -> None:
    """SIGTERM, and SIGKILL for what is still there after `stop_s`; returns when it is gone."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(stop_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
