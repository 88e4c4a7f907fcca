"""Live streams and a recording through the whole service, before SGLang-Omni servers with random weights.

    python -m engine.sglang.bench.omni.live CASE... --model DIR --audio DIR --out FILE --logs DIR

A case is `streams[:seconds[:recording]]`: so many live streams for so long, and beside them, if `recording`
is given, a recording of so many seconds over HTTP. The engines are started by `seamscribe engine`, the
service by `fixed.py`, the streams by `seamscribe bench load`, all over loopback sockets. `--standin` starts
servers without a model, to try the script where there is no GPU.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.sglang.bench.meters import metered, percentile
from engine.sglang.launcher import find_machine
from engine.sglang.opening import OMNI_STREAM_FROM as STREAM_FROM

from .direct import TOKENS_PER_S
from .engines import cache, child, say, spied, started
from .fixed import SPLIT, VARIABLE
from .recording import record

ENGINE, SERVICE = 32000, 32800
_SPARE_S = 40.0
"""What a case takes beside its audio."""
_SPY_AFTER = 0.5
"""Share of a case's seconds after which the engine is profiled."""


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement; `recording` is the seconds of one, 0 for none."""

    streams: int
    seconds: float = 40.0
    recording: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Case:
        """Raises `ValueError` for what is none."""
        parts = text.split(":")
        if not 1 <= len(parts) <= 3:
            raise ValueError(f"case {text!r}: say streams[:seconds[:recording]]")
        return cls(int(parts[0]), *map(float, parts[1:]))


def ports(options: argparse.Namespace) -> list[int]:
    """Of the engines."""
    return [ENGINE + number for number in range(options.engines)]


def engine_command(port: int, options: argparse.Namespace) -> list[str]:
    if options.standin:
        return [sys.executable, "-m", "engine.sglang.bench.omni.standin", "--port", str(port)]
    own = ["--port", str(port), "--running", str(options.running)]
    own += ["--memory-fraction", str(options.fraction)]
    tuned = ["engine.sglang.bench.omni.tuned", *options.factory] if options.factory else ["streaming"]
    return [sys.executable, "-m", *tuned, "engine", str(options.model), *own]


def servers(options: argparse.Namespace) -> dict[str, str]:
    """The service's environment: which engines serve what."""
    urls = [f"http://127.0.0.1:{port}" for port in ports(options)]
    live, apart = (urls[:-1], urls[-1:]) if options.apart else (urls, [])
    return {
        "SEAMSCRIBE_ENGINE__SERVERS": ",".join(live),
        "SEAMSCRIBE_ENGINE__RECORDING_SERVERS": ",".join(apart),
    }


def fronts(case: Case, options: argparse.Namespace) -> int:
    """Processes of the service."""
    return int(min(options.fronts, max(1, case.streams // 8)))


def service_command(processes: int) -> list[str]:
    own = ["serve", "--no-journal", "--host", "127.0.0.1", "--port", str(SERVICE), "--engine", "sglang"]
    own += ["--model", "moss_td", "--processes", str(processes)]
    return [sys.executable, "-m", "engine.sglang.bench.omni.fixed", *own]


async def measure(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """One case's row, with a service of its own."""
    name = f"{case.streams}-{case.seconds:g}-{case.recording:g}"
    decodes, found = options.logs / f"decodes-{name}.jsonl", options.logs / f"load-{name}.json"
    processes = fronts(case, options)
    environment = {
        VARIABLE: f"{options.tokens}:{options.recording_tokens}:{decodes}",
        SPLIT: "1" if options.split else "",
        **servers(options),
        "SEAMSCRIBE_ENGINE__CONCURRENCY": str(options.engines * options.running // processes),
        "SEAMSCRIBE_LIMITS__MAX_SESSIONS": str(case.streams + 4),
        # So many streams are wanted, however late their words: that is what is measured.
        "SEAMSCRIBE_ADMISSION__ON": "false",
        "SEAMSCRIBE_SESSION__SPEAKERS": "false",
        "SEAMSCRIBE_SESSION__WINDOW_S": str(options.window),
        "SEAMSCRIBE_SERVER__LOG_LEVEL": "info",
    }
    row: dict[str, Any] = {"case": asdict(case), "window_s": options.window, "fronts": processes}
    row |= {
        "engines": options.engines,
        "factory": options.factory,
        "split": options.split,
        "apart": options.apart,
    }
    url = f"http://127.0.0.1:{SERVICE}"
    log = options.logs / f"service-{name}.log"
    with child(service_command(processes), log, f"{url}/healthz", environment) as service:
        async with metered() as usage:
            began = time.monotonic()
            recording = asyncio.create_task(record(case.recording, url, options.audio))
            spy = asyncio.create_task(spy_on(case, options.logs / f"spy-{name}", options.spy))
            if case.recording:
                await asyncio.sleep(5)  # it is read and asked for before the streams begin
            row["status"] = await speak(case, url, service.pid, found, options)
            took = time.monotonic() - began
            row["recording"] = await recording
            await spy
    row |= {"gpu": usage.gpu, "gpu_mib": usage.gpu_mib, "cores": usage.machine_cores}
    made = rows_of(decodes)
    row |= {"processes": usage.processes, "decodes": classes(made), "output": output(made)}
    row["live_audio_s_per_s"] = heard(made) / max(took, 1e-9)
    if found.is_file():
        document = json.loads(found.read_text("utf-8") or "{}")
        row["total"], row["faults"] = document.get("total"), (document.get("faults") or [])[:3]
    return row


async def speak(case: Case, url: str, pid: int, found: Path, options: argparse.Namespace) -> object:
    """The live streams; the command's status, or why there is none."""
    command = [sys.executable, "-m", "streaming", "bench", "load", "--audio", str(options.audio)]
    command += ["--select", options.select, "--url", url, "--meter", str(pid), "--json", str(found)]
    command += ["--streams", str(case.streams), "--seconds", str(case.seconds), "--ramp", "5"]
    command += ["--processes", str(min(case.streams, options.speakers))]
    log = await asyncio.to_thread(open, options.logs / "load.log", "ab")
    with log:
        made = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log, start_new_session=True)
        try:
            return await asyncio.wait_for(made.wait(), case.seconds + 3 * _SPARE_S)
        except TimeoutError:
            return "took too long"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(made.pid, signal.SIGKILL)


async def spy_on(case: Case, out: Path, seconds: float) -> None:
    """Profiles of the busiest process, `seconds` each, from the middle of the case on; none for 0."""
    if seconds:
        await asyncio.sleep(_SPY_AFTER * case.seconds)
        await spied(seconds, out)


def rows_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.is_file() else []


def classes(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Delays of the decodes by kind, seconds; what was replaced by a newer one counts as such."""
    out: dict[str, dict[str, Any]] = {}
    for kind in ("first", "refresh", "final", "batch"):
        mine = [row for row in rows if row["kind"] == kind]
        took = sorted(row["took"] for row in mine if row["cause"] is None)
        causes = [str(row["cause"]) for row in mine if row["cause"] is not None]
        if mine:
            out[kind] = {
                "count": len(took),
                "failed": {cause: causes.count(cause) for cause in set(causes)},
                "audio_s": float(np.mean([row["audio_s"] for row in mine])),
                **{f"p{p}": percentile(took, p / 100) if took else None for p in (50, 95, 99)},
            }
    return out


def heard(rows: Sequence[Mapping[str, Any]]) -> float:
    """Seconds of live audio that were decoded."""
    return float(sum(row["audio_s"] for row in rows if row["cause"] is None and row["kind"] != "batch"))


def output(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How much was written: tokens a second of audio where the engine counts them, which it does not where
    it streams; and the characters of each recording's decodes."""
    most: dict[int, int] = {}
    for row in rows:
        most[row["pid"]] = max(most.get(row["pid"], 0), row["output_tokens"])
    told = sum(row["audio_s"] for row in rows if row["cause"] is None and 0 < row["asked"] < STREAM_FROM)
    return {
        "tokens_per_audio_s": sum(most.values()) / max(told, 1e-9),
        "recording": [
            {key: row[key] for key in ("audio_s", "took", "asked", "chars", "cause")}
            for row in rows
            if row["kind"] == "batch"
        ],
    }


HEADER = (
    "| streams | recording | refresh p50 / p95 / p99 | final p50 / p95 / p99 | committed p50 / p95 / p99 |"
    " audio-s/s | refreshes, finals | failed | CPU a stream | GPU % |\n|" + "---|" * 10
)


def line(row: Mapping[str, Any]) -> str:
    """A row as a line of the table."""
    case, total, decodes = row["case"], row.get("total"), row["decodes"]

    def of(found: Mapping[str, Any] | None) -> str:
        keys = ("p50", "p95", "p99")
        return " / ".join("-" if not found or found.get(k) is None else f"{found[k]:.2f}" for k in keys)

    counts = [decodes.get(kind, {}).get("count", 0) for kind in ("refresh", "final")]
    failed = {kind: found["failed"] for kind, found in decodes.items() if found["failed"]}
    said = row["recording"]
    told = "-" if said is None else f"{said['seconds']:g} s in {said['took_s']:.0f} s, {said['status']}"
    cpu = "-" if not total else f"{total['cpu_s_per_audio_s'] or 0:.4f}"
    return (
        f"| {case['streams']} | {told} | {of(decodes.get('refresh'))} | {of(decodes.get('final'))} |"
        f" {of(total and total['commit'])} | {row['live_audio_s_per_s']:.0f} | {counts[0]}, {counts[1]} |"
        f" {failed or 0} | {cpu} | {row['gpu']:.0f} |"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m engine.sglang.bench.omni.live",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="+", type=Case.parse)
    parser.add_argument("--model", type=Path, required=True, help="of checkpoint.py")
    parser.add_argument("--audio", type=Path, required=True, help="packed speech with a MANIFEST.tsv")
    parser.add_argument("--select", default="u/", help="as for bench load")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one a case")
    parser.add_argument("--logs", type=Path, required=True)
    parser.add_argument("--tokens", type=float, default=TOKENS_PER_S, help="of output a second of live audio")
    parser.add_argument("--recording-tokens", type=float, default=2.0, help="a second of a recording")
    parser.add_argument("--window", type=float, default=24.0, help="session.window_s")
    parser.add_argument("--running", type=int, default=128)
    parser.add_argument("--fraction", type=float, default=0.6)
    parser.add_argument("--engines", type=int, default=1, help="on the one GPU; halve --fraction for two")
    parser.add_argument(
        "--factory", action="append", default=[], metavar="KEY=VALUE", help="of the engines, as of tuned.py"
    )
    parser.add_argument("--apart", action="store_true", help="the last engine takes recordings only")
    parser.add_argument("--split", action="store_true", help="recordings in windows, as any other model's")
    parser.add_argument("--spy", type=float, default=0.0, help="profile the engine, so many seconds a case")
    parser.add_argument("--leave", action="store_true", help="leave the engines running for the next call")
    parser.add_argument("--fronts", type=int, default=6, help="processes of the service at most")
    parser.add_argument("--speakers", type=int, default=4, help="processes that speak")
    parser.add_argument("--budget", type=float, default=500.0, help="seconds for everything")
    parser.add_argument("--standin", action="store_true")
    return parser


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    end = time.monotonic() + options.budget
    options.logs.mkdir(parents=True, exist_ok=True)
    lines, log = [HEADER], options.logs / f"engine-{ENGINE}.log"
    commands = {port: engine_command(port, options) for port in ports(options)}
    with started(commands, options.logs, leave=options.leave):
        kept = cache(log, {"fraction": options.fraction, "memory_gib": find_machine().memory_gib or 0.0})
        say(f"KV cache: {kept}")
        for case in options.cases:
            if end - time.monotonic() < case.seconds + _SPARE_S:
                say(f"left out for want of time: {case}")
                continue
            try:
                row = asyncio.run(measure(case, options)) | {"cache": kept}
            except RuntimeError as error:
                say(f"{case}: {error}")
                continue
            lines.append(line(row))
            say(f"{lines[-1]} {row['recording']} {row.get('faults')}")
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    say("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
