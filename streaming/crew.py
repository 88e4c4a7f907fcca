"""`seamscribe serve --processes N`: a parent that holds the listening socket, and N processes that serve.

All accept from one socket, each a connection at a time: who is busy takes fewer, who is frozen none, and what
waits to be accepted dies with nobody. A process that ends is replaced, after pauses that grow. The parent
serves nothing itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from msgspec.structs import replace

from streaming.sessions.admission import MEMORY_SHARE, memory_there_is

from .background import background
from .errors import SettingsError
from .settings import Settings

logger = logging.getLogger("seamscribe")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
"""Before a process that ended is replaced; doubled each time,"""

STEADY_S = 60.0
"""until one has lived so long."""

BEAT_S = 2.0
"""A process says so often that it lives,"""

QUIET = 5
"""and is frozen, or has far too little time, where it did not for so many times as long twice."""

LEAVING_S = 30.0
"""A process that was told to stop may take so long beyond its drain to let go of its engine."""


def share_of(settings: Settings, number: int = 0) -> Settings:
    """The settings of process `number` of `server.processes`, which share a machine; raises `SettingsError`
    for what they cannot share."""
    count, engine = settings.server.processes, settings.engine
    if count == 1:
        return settings
    if settings.journal.on and not settings.journal.url:
        raise SettingsError(
            f"journal.url: {count} processes cannot keep their sessions in one file: name a Redis, or set"
            " journal.on = false (--no-journal), and a client comes back to its own process only by chance"
        )
    port = settings.cluster.port
    if port and port + count > 65_536:
        raise SettingsError(f"cluster.port: {count} processes need as many ports from {port} on: lower it")
    if engine.kind == "sglang" and not engine.servers:
        raise SettingsError(
            f"engine.servers: {count} processes would each load the model: start `seamscribe engine MODEL`"
            " once and name its address"
        )
    threads = engine.threads or max(1, (os.cpu_count() or 1) // count)
    memory = settings.admission.memory_bytes or round(MEMORY_SHARE * memory_there_is() / count)
    return replace(
        settings,
        engine=replace(engine, threads=threads),
        admission=replace(settings.admission, memory_bytes=memory),
        cluster=replace(settings.cluster, port=port and port + number),
    )


class Crew:
    """The processes, each `command` with its number, and `listener` (a file descriptor) to listen on."""

    def __init__(self, command: Sequence[str], listener: int, count: int, leave_s: float) -> None:
        """A process that was told to stop is killed after `leave_s`."""
        self._command = command
        self._listener = listener
        self._count = count
        self._leave_s = leave_s
        self._stop = asyncio.Event()
        self._lines: list[str] = []
        self._status = 0

    async def run(self, stop: asyncio.Event) -> int:
        """Until `stop`, or one of the processes does not come up at first; 0 where all ended well, else the
        first other status."""
        async with background(self._pass_on(stop)), asyncio.TaskGroup() as group:
            for number in range(self._count):
                group.create_task(self._keep(number))
        return self._status

    async def _pass_on(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._stop.set()

    async def _keep(self, number: int) -> None:
        """Have a process with this number, again and again."""
        loop, pause_s = asyncio.get_running_loop(), FIRST_PAUSE_S
        while not self._stop.is_set():
            began = loop.time()
            status = await self._serve(number)
            if self._stop.is_set():
                # One that was told to stop before it could listen to signals ended as it should.
                self._status = self._status or (0 if status == -signal.SIGTERM else abs(status))
                return
            if len(self._lines) < self._count:
                self._status = abs(status) or 1
                self._stop.set()
                return
            pause_s = FIRST_PAUSE_S if loop.time() - began > STEADY_S else min(2 * pause_s, LONGEST_PAUSE_S)
            said = {"number": number, "status": status, "pause_s": pause_s}
            logger.error(
                "process %(number)d ended with status %(status)d; another follows in %(pause_s).1f s", said
            )
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause_s)

    async def _serve(self, number: int) -> int:
        """One process from its start to its end; its status."""
        process = await asyncio.create_subprocess_exec(
            *(*self._command, "--number", str(number)),
            stdin=asyncio.subprocess.PIPE,  # at its end the process knows that we are gone
            stdout=asyncio.subprocess.PIPE,
            pass_fds=[self._listener],
            process_group=0,  # Ctrl-C is the parent's to pass on
        )
        ended = asyncio.create_task(self._listen(process, number))
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ended.done():
            process.terminate()
            await asyncio.wait([ended], timeout=self._leave_s)
        if not ended.done():
            logger.error("process %(pid)d did not stop: killed", {"pid": process.pid})
            process.kill()
        return await ended

    async def _listen(self, process: asyncio.subprocess.Process, number: int) -> int:
        """Tell, once, that all listen, and which of them says nothing for long; return when the process has
        ended."""
        assert process.stdout is not None
        first, quiet = True, 0
        while True:
            try:
                # Until it listens it may take its time: models are loaded.
                line = await asyncio.wait_for(process.stdout.readline(), None if first else 2 * BEAT_S)
            except TimeoutError:  # counted, not measured: while this process stood still it heard nobody
                quiet += 1
                if quiet == QUIET:
                    said = {"number": number, "pid": process.pid, "seconds": 2 * QUIET * BEAT_S}
                    logger.error(
                        "process %(number)d (%(pid)d) says nothing for %(seconds).0f s: it is frozen, or has"
                        " far too little time, and those who are connected to it wait",
                        said,
                    )
                continue
            if not line:
                return await process.wait()
            if quiet >= QUIET:
                logger.warning("process %(number)d goes on", {"number": number})
            quiet = 0
            if line.strip() and first:
                first = False
                self._announced(line.decode())

    def _announced(self, line: str) -> None:
        if len(self._lines) < self._count:
            self._lines.append(line)
            if len(self._lines) == self._count:
                print(self._lines[0], end="", flush=True)  # noqa: T201 - other programs wait for it


@contextmanager
def watching_parent() -> Iterator[None]:
    """Stop, as by SIGTERM, when the parent is gone: then stdin is at its end. Until then tell it every now
    and then, with an empty line, that this process lives."""
    loop = asyncio.get_running_loop()
    stdin = sys.stdin.fileno()

    def gone() -> None:
        if not os.read(stdin, 1):
            loop.remove_reader(stdin)
            signal.raise_signal(signal.SIGTERM)

    beating = loop.call_later(BEAT_S, lambda: beat())

    def beat() -> None:
        nonlocal beating
        with suppress(OSError):
            os.write(sys.stdout.fileno(), b"\n")  # nothing is left to be flushed where nobody reads it
        beating = loop.call_later(BEAT_S, beat)

    loop.add_reader(stdin, gone)
    try:
        yield
    finally:
        beating.cancel()
        loop.remove_reader(stdin)
