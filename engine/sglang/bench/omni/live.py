"""Live streams and a recording through the whole service, before one SGLang-Omni server with random weights.

    python -m engine.sglang.bench.omni.live CASE... --model DIR --audio DIR --out FILE --logs DIR

A case is `streams[:seconds[:recording]]`: so many live streams for so long, and beside them, if `recording`
is given, a recording of so many seconds over HTTP. The engine is started by `seamscribe engine`, the service
by `fixed.py`, the streams by `seamscribe bench load`, all over loopback sockets. `--standin` starts a server
without a model, to try the script where there is no GPU.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.sglang.bench.meters import metered, percentile
from engine.sglang.http1 import Endpoint, HttpError
from engine.sglang.launcher import find_machine
from engine.sglang.payload import RATE, as_wav

from .direct import TOKENS_PER_S
from .fixed import VARIABLE

ENGINE, SERVICE = 32000, 32800
_START_S = 400.0
_SPARE_S = 40.0
"""What a case takes beside its audio."""
_RECORDING_S = 420.0
"""A recording is given up after so long."""
_POSITIONS = re.compile(r"#tokens: (\d+)|max_total_num_tokens=(\d+)")
_SIZE = re.compile(r"K size: ([\d.]+) GB, V size: ([\d.]+) GB")


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


def _end(made: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(made.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            made.wait(10)
        os.killpg(made.pid, signal.SIGKILL)


def engine_command(options: argparse.Namespace) -> list[str]:
    if options.standin:
        return [sys.executable, "-m", "engine.sglang.bench.omni.standin", "--port", str(ENGINE)]
    own = ["--port", str(ENGINE), "--running", str(options.running)]
    own += ["--memory-fraction", str(options.fraction)]
    return [sys.executable, "-m", "streaming", "engine", str(options.model), *own]


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
        "SEAMSCRIBE_ENGINE__SERVERS": f"http://127.0.0.1:{ENGINE}",
        "SEAMSCRIBE_ENGINE__CONCURRENCY": str(options.running // processes),
        "SEAMSCRIBE_LIMITS__MAX_SESSIONS": str(case.streams + 4),
        # So many streams are wanted, however late their words: that is what is measured.
        "SEAMSCRIBE_ADMISSION__ON": "false",
        "SEAMSCRIBE_SESSION__SPEAKERS": "false",
        "SEAMSCRIBE_SESSION__WINDOW_S": str(options.window),
        "SEAMSCRIBE_SERVER__LOG_LEVEL": "info",
    }
    row: dict[str, Any] = {"case": asdict(case), "window_s": options.window, "fronts": processes}
    url = f"http://127.0.0.1:{SERVICE}"
    log = options.logs / f"service-{name}.log"
    with child(service_command(processes), log, f"{url}/healthz", environment) as service:
        async with metered() as usage:
            began = time.monotonic()
            recording = asyncio.create_task(record(case.recording, url, options.audio))
            if case.recording:
                await asyncio.sleep(5)  # it is read and asked for before the streams begin
            row["status"] = await speak(case, url, service.pid, found, options)
            took = time.monotonic() - began
            row["recording"] = await recording
    row |= {"gpu": usage.gpu, "gpu_mib": usage.gpu_mib, "cores": usage.machine_cores}
    row["processes"], row["decodes"] = usage.processes, classes(rows_of(decodes))
    row["live_audio_s_per_s"] = sum(
        one["audio_s"] for one in rows_of(decodes) if one["cause"] is None and one["kind"] != "batch"
    ) / max(took, 1e-9)
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


async def record(seconds: float, url: str, audio: Path) -> dict[str, Any] | None:
    """A recording over HTTP with its progress; None where none is wanted."""
    if not seconds:
        return None
    body = _form(as_wav(spoken(seconds, audio)))
    endpoint, began, events, pending = Endpoint(url), time.monotonic(), list[str](), b""
    exchange = endpoint.exchange("POST", "/v1/audio/transcriptions", body, "multipart/form-data; boundary=x")
    text, status = "", 0
    try:
        async with asyncio.timeout(_RECORDING_S), contextlib.aclosing(exchange) as pieces:
            async for answered, piece in pieces:
                status, pending = answered, pending + piece
                *whole, pending = pending.split(b"\n\n")
                for event in whole:
                    said = json.loads(event.removeprefix(b"data: "))
                    events.append(said.get("type", "error"))
                    text = said.get("text", text) if said.get("type") == "transcript.text.done" else text
                    if "error" in said:
                        text = str(said["error"])[:200]
    except (HttpError, TimeoutError, ValueError) as error:
        text = repr(error)[:200]
    endpoint.close()
    took = time.monotonic() - began
    kinds = {kind: events.count(kind) for kind in set(events)}
    told = {"status": status, "took_s": took, "rtf": took / seconds, "events": kinds}
    return {"seconds": seconds, **told, "words": len(text.split()), "end": text[-200:]}


def spoken(seconds: float, folder: Path) -> bytes:
    """16-bit samples of the packed utterances, again and again, half a second apart."""
    pieces, left = list[bytes](), round(2 * RATE * seconds)
    files = sorted(folder.rglob("*.pcm"))
    while left > 0:
        for file in files:
            data = file.read_bytes() + bytes(RATE)
            pieces.append(data[:left])
            left -= len(pieces[-1])
            if left <= 0:
                break
    return b"".join(pieces)


def _form(wav: bytes) -> bytes:
    fields = {"model": "any", "stream": "true", "response_format": "json"}
    parts = [
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    return b"".join([*parts, head, wav, b"\r\n--x--\r\n"])


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


def main(argv: Sequence[str]) -> int:
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
    parser.add_argument("--leave", action="store_true", help="leave the engine running for the next call")
    parser.add_argument("--fronts", type=int, default=6, help="processes of the service at most")
    parser.add_argument("--speakers", type=int, default=4, help="processes that speak")
    parser.add_argument("--budget", type=float, default=500.0, help="seconds for everything")
    parser.add_argument("--standin", action="store_true")
    options = parser.parse_args(argv)
    end = time.monotonic() + options.budget
    options.logs.mkdir(parents=True, exist_ok=True)
    lines, log = [HEADER], options.logs / "engine.log"
    url = f"http://127.0.0.1:{ENGINE}/health"
    engine: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if not answers(url):
        engine = child(engine_command(options), log, url, leave=options.leave)
    with engine:
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
