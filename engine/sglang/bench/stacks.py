"""Where processes' time goes: stacks sampled from outside while a load runs.

`python -m engine.sglang.bench.stacks FILE...` prints the share of the samples by line and by function.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from .kinds import processes

_RATE = 200


@asynccontextmanager
async def sampled(folder: str | None, name: str, seconds: float) -> AsyncIterator[None]:
    """Sample this process and one scheduler of its engine for `seconds`, into files of `folder`."""
    tool = shutil.which("py-spy")
    scheduler = await asyncio.to_thread(_scheduler)
    if folder is None or tool is None or scheduler is None:
        yield
        return
    running: list[subprocess.Popen[bytes]] = []
    for pid, part in ((scheduler, "scheduler"), (os.getpid(), "own")):
        arguments = [*_arguments(pid, seconds), "--output", str(_target(Path(folder), f"{name} {part}"))]
        running.append(
            await asyncio.to_thread(subprocess.Popen, [tool, *arguments], stdout=sys.stderr.fileno())
        )
    try:
        yield
    finally:
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, 8.0)
            process.terminate()


def record(folder: Path, name: str, kinds: Sequence[str], seconds: float) -> None:
    """Sample the busiest process of each of these kinds for `seconds`, into files of `folder`; nothing where
    there is no py-spy. Blocks."""
    tool = shutil.which("py-spy")
    if tool is None:
        return
    before = processes()
    time.sleep(1.0)
    used: dict[str, tuple[float, int]] = {}
    for pid, (kind, spent) in processes().items():
        if kind in kinds:
            used[kind] = max(used.get(kind, (0.0, 0)), (spent - before.get(pid, (kind, spent))[1], pid))
    running = [
        subprocess.Popen(
            [tool, *_arguments(pid, seconds), "--output", str(_target(folder, f"{name} {kind}"))],
            stdout=sys.stderr.fileno(),
        )
        for kind, (_, pid) in used.items()
    ]
    for process in running:
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds + 8.0)
        process.terminate()


def _arguments(pid: int, seconds: float) -> list[str]:
    own = ["record", "--pid", str(pid), "--duration", f"{seconds:.0f}", "--rate", str(_RATE)]
    return [*own, "--format", "raw", "--nonblocking", "--threads"]


def _target(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    short = re.sub(r"[^a-z0-9]+", "-", name.lower())
    return folder / f"{short}-{len(list(folder.iterdir()))}.stacks"


def _scheduler() -> int | None:
    """The process id of the first scheduler in this process's group."""
    group = os.getpgrp()
    for entry in sorted(os.scandir("/proc"), key=lambda entry: entry.name):
        with suppress(OSError):
            if not entry.name.isdigit() or os.getpgid(int(entry.name)) != group:
                continue
            if Path(entry.path, "cmdline").read_bytes().startswith(b"sglang::scheduler"):
                return int(entry.name)
    return None


def shares(stacks: Path, top: int = 25) -> str:
    """The busiest lines (where a sample was) and functions (through which it went), in percent of all."""
    lines: Counter[str] = Counter()
    through: Counter[str] = Counter()
    total = 0
    for record in stacks.read_text("utf-8", "replace").splitlines():
        stack, _, count = record.rpartition(" ")
        frames = [re.sub(r"\S*/", "", frame) for frame in stack.split(";")]
        total += int(count)
        lines[frames[-1]] += int(count)
        for function in {re.sub(r":\d+\)", ")", frame) for frame in frames}:
            through[function] += int(count)
    out = [f"{stacks.name}: {total} samples"]
    for title, counts in (("in", lines), ("through", through)):
        out += [f"  {100 * n / max(total, 1):5.1f} % {title} {what}" for what, n in counts.most_common(top)]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    for given in sys.argv[1:]:
        sys.stdout.write(shares(Path(given)))
