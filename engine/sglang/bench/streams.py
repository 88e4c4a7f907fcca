"""Live streams through the whole service: SGLang servers on this machine's GPU, our server in several
processes before them, `seamscribe bench load` before that, all over loopback sockets.

    python -m engine.sglang.bench.streams CASE... --tiny DIR --large DIR --audio DIR --out FILE --logs DIR

A case is `model:streams:fronts:at_once[:seconds][+name=value...]`, e.g. `tiny:1000:10:16` or
`large:400:8:8:40+session.max_delay_s=2.6`: which engines, how many streams, how many processes of our server,
and how many decodes each of those has under way at most (0: as many as the engines hold); then settings of
our server, or `engines=N`: how many of those that run, `packet_ms=N`: audio of a message, `stacks=1`: sample
what a front, a tokenizer and a scheduler do (py-spy). All engines are started at first and idle until it is
their turn; those that answer already are taken as they are.
`--standin` starts servers without a model, to try the script where there is no GPU.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from .kinds import Cores, by_kind
from .meters import metered
from .stacks import record

_START_S = 300.0
_WARM_S = 8.0
_STACKS_AT_S, _STACKS_S = 12.0, 6.0
"""Stacks are sampled so long after the ramp would be over had our processes started at once, for so long."""
_SPARE_S = 75.0
"""What a case takes beside its audio: our processes' start, the ramp, the last words."""


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement."""

    model: str
    streams: int
    fronts: int
    at_once: int
    seconds: float = 40.0
    ramp_s: float = 8.0
    engines: int = 0
    """0: all of its model."""
    packet_ms: int = 100
    stacks: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    """Of our server, by their names in a settings file."""

    @classmethod
    def parse(cls, text: str) -> Case:
        """Raises `ValueError` for what is none."""
        first, *more = text.split("+")
        parts = first.split(":")
        if not 4 <= len(parts) <= 5:
            raise ValueError(f"case {text!r}: say model:streams:fronts:at_once[:seconds][+name=value...]")
        named = dict(one.split("=", 1) for one in more if "=" in one)
        if len(named) < len(more):
            raise ValueError(f"case {text!r}: say +name=value, each name once")
        engines, packet_ms, stacks = (
            int(named.pop(name, usual)) for name, usual in (("engines", 0), ("packet_ms", 100), ("stacks", 0))
        )
        if odd := [name for name in named if "." not in name]:
            raise ValueError(f"case {text!r}: {odd[0]} is no setting: name one as in a file, a.b")
        streams, fronts, at_once = map(int, parts[1:4])
        case = cls(parts[0], streams, fronts, at_once)
        case = replace(case, seconds=float(parts[4])) if parts[4:] else case
        case = replace(case, engines=engines, packet_ms=packet_ms, stacks=stacks, settings=named)
        if case.seconds <= case.ramp_s:
            raise ValueError(f"case {text!r}: the last stream begins after {case.ramp_s:g} s: speak longer")
        return case

    @property
    def name(self) -> str:
        """For files and tables."""
        own = {"engines": self.engines, "packet_ms": self.packet_ms if self.packet_ms != 100 else 0}
        named = {name: str(value) for name, value in own.items() if value} | self.settings
        first = f"{self.model}-{self.streams}-{self.fronts}-{self.at_once}"
        return "-".join([first, *(f"{name.rpartition('.')[2]}={value}" for name, value in named.items())])


def engine_command(model: str, folder: Path, port: int, options: argparse.Namespace) -> list[str]:
    """Starts one SGLang server, or its stand-in."""
    if options.standin:
        own = ["-m", "engine.sglang.bench.standin", "--port", str(port), "--model", str(folder)]
        return [sys.executable, *own, "--delay", "0.2"]
    own = ["--port", str(port), "--running", str(options.running), "--tokenizers", str(options.tokenizers)]
    # What it batches is logged, not every request.
    flags = ["--log-level", "info", "--log-level-http", "warning"]
    if options.positions:
        # Several engines measure the free memory while the others take theirs: the size is said instead.
        flags += ["--max-total-tokens", str(options.positions), "--mem-fraction-static", "0.9"]
    return [sys.executable, "-m", "streaming", "engine", str(folder), *own, "--", *flags]


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@contextlib.contextmanager
def engines(options: argparse.Namespace, ports: dict[str, list[int]]) -> Iterator[None]:
    """All servers, until the block ends, those apart that run already, or are to be kept for another call;
    raises RuntimeError where one does not come up."""
    children: list[subprocess.Popen[bytes]] = []
    started: list[int] = []
    folders = {"tiny": options.tiny, "large": options.large}
    try:
        began = time.monotonic()
        for model, places in ports.items():
            for place, port in enumerate(places):
                if healthy(port):
                    continue
                started.append(port)
                with open(options.logs / f"engine-{port}.log", "wb") as log:
                    command = engine_command(model, folders[model], port, options)
                    children.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))
                if place == 0:
                    _await(children[-1], port, began)  # compiles what the others then find
        for child, port in zip(children, started, strict=True):
            _await(child, port, began)
            say(f"engine at {port} serves after {time.monotonic() - began:.0f} s")
        yield
    finally:
        for child in children if not options.keep else ():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, 9)


def _await(child: subprocess.Popen[bytes], port: int, began: float) -> None:
    while not healthy(port):
        if child.poll() is not None or time.monotonic() - began > _START_S:
            raise RuntimeError(f"the engine at {port} did not start: see its log")
        time.sleep(0.5)


async def measure(case: Case, ports: Sequence[int], options: argparse.Namespace) -> dict[str, Any]:
    """One case's row."""
    name, ports = case.name, ports[: case.engines or None]
    found = options.logs / f"load-{name}-{time.monotonic():.0f}.json"
    command = [sys.executable, "-m", "streaming", "bench", "load", "--audio", str(options.audio)]
    command += ["--streams", str(case.streams), "--seconds", str(case.seconds), "--ramp", str(case.ramp_s)]
    command += ["--processes", str(options.speakers), "--json", str(found), "--select", options.select]
    command += ["--packet-ms", str(case.packet_ms)]
    served = ["--engine", "sglang", "--model", str(vars(options)[case.model]), "--no-speakers"]
    command += [f"--serve={part}" for part in [*served, "--processes", str(case.fronts)]]
    environment = os.environ | {
        "SEAMSCRIBE_ENGINE__SERVERS": ",".join(f"http://127.0.0.1:{port}" for port in ports),
        "SEAMSCRIBE_ENGINE__CONCURRENCY": str(case.at_once),
        "SEAMSCRIBE_LIMITS__MAX_SESSIONS": str(case.streams),
        # So many streams are wanted, however late their words: that is what is measured.
        "SEAMSCRIBE_ADMISSION__ON": "false",
        "SEAMSCRIBE_SERVER__LOG_LEVEL": "warning",
    }
    for setting, value in case.settings.items():
        environment["SEAMSCRIBE_" + setting.upper().replace(".", "__")] = value
    row: dict[str, Any] = {"case": asdict(case), "engines": len(ports)}
    log = await asyncio.to_thread(open, options.logs / f"load-{name}.log", "ab")
    with log:
        async with metered() as usage, by_kind() as cores:
            child = await asyncio.create_subprocess_exec(
                *command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
            sampling = asyncio.create_task(_stacks(case, options.logs))
            try:
                row["status"] = await asyncio.wait_for(
                    child.wait(), case.seconds + case.ramp_s + 2 * _SPARE_S
                )
            except TimeoutError:
                row["status"] = "took too long"
            finally:
                sampling.cancel()
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, 9)
    row |= {"gpu": usage.gpu, "gpu_mib": usage.gpu_mib, "cores": usage.machine_cores}
    row["processes"] = usage.processes
    row["series"] = [asdict(one) for one in cores]
    row["busiest"] = str(max(cores, key=lambda one: one.total, default=Cores(0.0)))
    if found.is_file():
        document = json.loads(found.read_text("utf-8") or "{}")
        row |= {key: document.get(key) for key in ("total", "faults", "environment")}
        row["faults"] = (row["faults"] or [])[:5]
    return row


async def _stacks(case: Case, folder: Path) -> None:
    """Of a case that wants it: what one front, tokenizer and scheduler do once all streams are live."""
    if case.stacks:
        await asyncio.sleep(case.ramp_s + _STACKS_AT_S)
        await asyncio.to_thread(record, folder, case.name, ("front", "tokenizer", "scheduler"), _STACKS_S)


HEADER = (
    "| case | engines | first text p50 | committed p50 / p95 / p99 / max |"
    " final p50 / p95 | WER % | states a stream and s | faults | CPU a stream: server, speakers |"
    " cores | GPU % |\n|" + "---|" * 11
)


def line(row: dict[str, Any]) -> str:
    """A row as a line of the table."""
    case, total = row["case"], row.get("total")
    head = f"| {Case(**case).name} | {row['engines']} |"
    if not total:
        return f"{head} failed: {row['status']} |"

    def of(name: str, *keys: str) -> str:
        return " / ".join("-" if total[name][key] is None else f"{total[name][key]:.2f}" for key in keys)

    cpu = f"{total['cpu_s_per_audio_s'] or 0:.4f}, {total['bench_cpu_s_per_audio_s']:.4f}"
    return (
        f"{head} {of('first_text', 'p50')} | {of('commit', 'p50', 'p95', 'p99', 'max')} |"
        f" {of('final', 'p50', 'p95')} | {100 * (total['wer'] or 0):.1f} | {total['updates_per_s']:.2f} |"
        f" {total['faults']} | {cpu} | {row['cores']:.1f} | {row['gpu']:.0f} |"
    )


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m engine.sglang.bench.streams",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="+", type=Case.parse)
    parser.add_argument("--tiny", type=Path, required=True, help="a Hugging Face folder")
    parser.add_argument("--large", type=Path, help="another, say of widened.py")
    parser.add_argument("--audio", type=Path, required=True, help="a folder with a MANIFEST.tsv")
    parser.add_argument("--select", default="u/", help="as for bench load")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one a case")
    parser.add_argument("--logs", type=Path, required=True)
    parser.add_argument("--engines", type=int, nargs=2, default=(2, 1), metavar=("TINY", "LARGE"))
    parser.add_argument("--running", type=int, default=256)
    parser.add_argument("--tokenizers", type=int, default=2)
    parser.add_argument("--positions", type=int, default=0, help="of each engine's cache")
    parser.add_argument("--speakers", type=int, default=4, help="processes that speak")
    parser.add_argument("--budget", type=float, default=570.0, help="seconds for everything")
    parser.add_argument("--port", type=int, default=31000, help="of the first engine; others follow")
    parser.add_argument("--keep", action="store_true", help="leave the engines running")
    parser.add_argument("--standin", action="store_true")
    options = parser.parse_args(argv)
    end = time.monotonic() + options.budget
    options.logs.mkdir(parents=True, exist_ok=True)
    used = {case.model for case in options.cases}
    counts = dict(zip(("tiny", "large"), options.engines, strict=True))
    ports = {
        model: [options.port + 100 * place + number for number in range(counts[model])]
        for place, model in enumerate(("tiny", "large"))
        if model in used
    }
    lines = [HEADER]
    with engines(options, ports):
        for model, places in ports.items():
            # What an engine meets for the first time it may compile: a minute and a half, once a machine.
            asyncio.run(measure(Case(model, 4, 1, 0, _WARM_S, 1.0), places, options))
        for case in options.cases:
            if end - time.monotonic() < case.seconds + _SPARE_S:
                say(f"left out for want of time: {case}")
                continue
            row = asyncio.run(measure(case, ports[case.model], options))
            lines.append(line(row))
            say(f"{lines[-1]}\n  {row['busiest']}\n  {row.get('faults')}")
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    say("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
