"""The processes that a measurement starts, engines and service: when they are ready, and what they do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engine.sglang.bench.meters import process_s

_START_S = 400.0
_POSITIONS = re.compile(r"#tokens: (\d+)|max_total_num_tokens=(\d+)")
_SIZE = re.compile(r"K size: ([\d.]+) GB, V size: ([\d.]+) GB")
_SPY_HZ = 100


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@contextlib.contextmanager
def child(
    command: list[str],
    log: Path,
    url: str,
    environment: Mapping[str, str] | None = None,
    *,
    leave: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process until the block ends, or longer with `leave`, once `url` answers; raises RuntimeError where
    it does not."""
    with open(log, "ab") as file:
        made = subprocess.Popen(
            command,
            stdout=file,
            stderr=file,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
    log.with_suffix(".pid").write_text(f"{made.pid}\n", "ascii")  # of its group, to end it if it is left
    began = time.monotonic()
    try:
        while not answers(url):
            if made.poll() is not None or time.monotonic() - began > _START_S:
                raise RuntimeError(f"{command[:6]} did not start: see {log}")
            time.sleep(0.5)
        say(f"{log.name} serves after {time.monotonic() - began:.0f} s")
        yield made
    finally:
        if not leave:
            _end(made)


@contextlib.contextmanager
def started(commands: Mapping[int, list[str]], logs: Path, *, leave: bool) -> Iterator[None]:
    """Engines by their ports until the block ends, or longer with `leave`; those that answer already stay as
    they are. All start at once: SGLang-Omni lets one after the other have the GPU. Raises RuntimeError."""
    health = "http://127.0.0.1:{}/health"
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(commands)) as pool:

        def start(port: int) -> contextlib.AbstractContextManager[object]:
            url = health.format(port)
            if answers(url):
                return contextlib.nullcontext()
            running = child(commands[port], logs / f"engine-{port}.log", url, leave=leave)
            running.__enter__()
            return running

        for running in pool.map(start, commands):
            stack.push(running)
        yield


def _end(made: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(made.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            made.wait(10)
        os.killpg(made.pid, signal.SIGKILL)


def cache(log: Path, facts: Mapping[str, float]) -> dict[str, float] | None:
    """Positions of the KV cache as the engine's log tells, beside the seeds' formula."""
    text = log.read_text("utf-8", "replace")
    found = [int(one or other) for one, other in _POSITIONS.findall(text)]
    if not found:
        return None
    expected = (facts["fraction"] * facts["memory_gib"] - 1.6 - 1.3) * 2**30 / 114_688
    sizes = [float(k) + float(v) for k, v in _SIZE.findall(text)]
    told = {"positions": found[-1], "formula": round(expected), "share": found[-1] / expected}
    return told | ({"bytes_per_position": sizes[-1] * 2**30 / found[-1]} if sizes else {})


async def spied(seconds: float, out: Path) -> None:
    """Two profiles of the busiest process, so long each: which thread runs, and which has the interpreter's
    lock. Says so where it cannot."""
    tool = shutil.which("py-spy")
    before = process_s()
    await asyncio.sleep(2)
    used = {name: spent - before.get(name, 0.0) for name, spent in process_s().items()}
    busiest = max(used, key=lambda name: used[name])
    if tool is None:
        say(f"no py-spy: {busiest} is not profiled")
        return
    pid = busiest.rpartition(":")[2]
    common = [tool, "record", "--nonblocking", "-t", "-r", str(_SPY_HZ), "-d", f"{seconds:g}", "-f", "raw"]
    for name, more in (("running", []), ("lock", ["--gil"])):
        file = out.with_name(f"{out.name}-{name}.txt")
        made = await asyncio.create_subprocess_exec(*common, *more, "-o", str(file), "--pid", pid)
        await made.wait()
