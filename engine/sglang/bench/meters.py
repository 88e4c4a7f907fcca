"""How busy the machine is while a load runs: GPU by the driver's tool, CPU by the kernel's counters."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

_BUSIEST = 8
_QUERY = ("--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits")
_PERIOD_S = 0.5


@dataclass(slots=True)
class Usage:
    """Filled when the measured block ends. `gpu` in percent, `gpu_mib` at most, cores as a number."""

    gpu: float = 0.0
    gpu_mib: float = 0.0
    machine_cores: float = 0.0
    own_cores: float = 0.0
    processes: dict[str, float] = field(default_factory=dict)
    """The busiest processes, cores each: what is at one is what bounds."""
    _samples: list[tuple[float, float]] = field(default_factory=list)


@asynccontextmanager
async def metered() -> AsyncIterator[Usage]:
    """Measure what happens inside the block."""
    usage = Usage()
    loop = asyncio.get_running_loop()
    reader = asyncio.create_task(_watch_gpu(usage))
    began, machine, own, each = loop.time(), _machine_s(), _own_s(), process_s()
    try:
        yield usage
    finally:
        seconds = max(loop.time() - began, 1e-9)
        usage.machine_cores = (_machine_s() - machine) / seconds
        usage.own_cores = (_own_s() - own) / seconds
        used = {name: (spent - each.get(name, 0.0)) / seconds for name, spent in process_s().items()}
        busiest = sorted(used.items(), key=lambda entry: -entry[1])[:_BUSIEST]
        usage.processes = {name: round(cores, 2) for name, cores in busiest if cores >= 0.05}
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        if usage._samples:
            usage.gpu = sum(s[0] for s in usage._samples) / len(usage._samples)
            usage.gpu_mib = max(s[1] for s in usage._samples)


async def _watch_gpu(usage: Usage) -> None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return
    while True:
        # Asked anew each time: with an interval of its own the tool keeps its lines in a buffer.
        # And from a thread: SGLang's loop policy knows no child processes.
        answer = await asyncio.to_thread(
            subprocess.run, [tool, *_QUERY], capture_output=True, text=True, check=False
        )
        with contextlib.suppress(ValueError):
            busy, used = answer.stdout.split(",")[:2]
            usage._samples.append((float(busy), float(used)))
        await asyncio.sleep(_PERIOD_S)


def process_s() -> dict[str, float]:
    """CPU seconds of every process by name and id."""
    found: dict[str, float] = {}
    ticks = os.sysconf("SC_CLK_TCK")
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                line = Path(entry.path, "stat").read_text("utf-8", "replace")
                title = Path(entry.path, "cmdline").read_bytes().split(b"\0")[0].decode("utf-8", "replace")
                # The name stands in brackets and may hold anything; the numbers follow the last one.
                numbers = line.rpartition(")")[2].split()
                short = title.rpartition("/")[2][:24] or "?"
                found[f"{short}:{entry.name}"] = (int(numbers[11]) + int(numbers[12])) / ticks
    return found


def _machine_s() -> float:
    """CPU seconds of all processes since the machine started, idle and waiting apart."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(part) for part in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return 0.0
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of `values` lie; 0 for none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]
