"""Runs sets of engine configurations one after the other, each in a process of its own; prints a table.

    python -m engine.sglang.bench SET... --model DIR [--audio DIR] [--out FILE] [--budget 570]

Sets: front, tiny, turbo, chunks, turns, aims, interleaved, rest, smoke (a CPU). What fails is named and the
others run
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .sets import SETS
from .worker import MARKER, READY, Spec, encoded

_ALLOW_S = 300.0
"""Longest time one configuration may take."""
_NEED_S = 60.0
"""With less time left than this none is started."""


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.sglang.bench", description=__doc__)
    parser.add_argument("sets", nargs="+", choices=SETS)
    parser.add_argument("--model", required=True, help="a Hugging Face folder with real weights")
    parser.add_argument("--audio", help="a folder made by clips.py; noise without one")
    parser.add_argument("--out", type=Path, help="JSON lines, one a measurement")
    parser.add_argument("--logs", type=Path, help="a folder that keeps what each engine wrote")
    parser.add_argument("--together", type=int, default=1, help="engines that start at the same time")
    parser.add_argument("--budget", type=float, default=570.0, help="seconds for everything")
    options = parser.parse_args(argv)
    end = time.monotonic() + options.budget
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as work:
        chosen = [
            (name, spec)
            for name in options.sets
            for spec in SETS[name](options.model, options.audio, Path(work))
        ]
        size = max(1, options.together)
        for first in range(0, len(chosen), size):
            for row in group(chosen[first : first + size], end, options.logs, first):
                rows.append(row)
                if options.out:
                    with open(options.out, "a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
    sys.stdout.write("\n" + table(rows))
    return 0


def group(
    chosen: Sequence[tuple[str, Spec]], end: float, logs: Path | None, number: int
) -> Iterator[dict[str, Any]]:
    """The rows of engines that start together and are measured one after the other, until `end`."""
    if end - time.monotonic() < _NEED_S:
        for name, spec in chosen:
            yield {"set": name, "name": spec.name, "transport": spec.transport, "skipped": "no time left"}
        return
    workers = [
        (name, Worker(spec, logs and logs / f"{number + place:02d}-{name}.log"))
        for place, (name, spec) in enumerate(chosen)
    ]
    for _, worker in workers:
        worker.await_ready(min(end - time.monotonic(), _ALLOW_S))
    for name, worker in workers:
        for row in worker.measure(min(end - time.monotonic(), _ALLOW_S)):
            yield row | {"set": name}


class Worker:
    """An engine in a process group of its own, and what it measures."""

    def __init__(self, spec: Spec, log: Path | None) -> None:
        self._spec = spec
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
        self._log = open(log, "w+") if log else tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self._child = subprocess.Popen(
            [sys.executable, "-m", "engine.sglang.bench.worker", encoded(spec)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )

    def await_ready(self, limit_s: float) -> None:
        """Wait until its engine serves or has ended."""
        with _limited(self._child, limit_s):
            for line in self._child.stdout or ():
                if line.startswith(READY):
                    return

    def measure(self, limit_s: float) -> Iterator[dict[str, Any]]:
        """The rows as they come; a last one with "failed" where it did not end well."""
        assert self._child.stdin is not None
        count = 0
        with _limited(self._child, limit_s), self._log:
            with contextlib.suppress(BrokenPipeError):
                self._child.stdin.write("\n")
                self._child.stdin.flush()
            for line in self._child.stdout or ():
                if line.startswith(MARKER):
                    count += 1
                    row = json.loads(line[len(MARKER) :])
                    sys.stdout.write(table([row]).splitlines()[-1] + f"  {row['processes']}\n")
                    sys.stdout.flush()
                    yield row
            status = self._child.wait()
            _end(self._child)
            if status or count < len(self._spec.loads):
                self._log.seek(0)
                sys.stdout.write(
                    f"--- {self._spec.name} ended with {status} after {count} of {len(self._spec.loads)}\n"
                    f"{self._log.read()[-1500:]}\n"
                )
                yield {
                    "name": self._spec.name,
                    "transport": self._spec.transport,
                    "failed": f"status {status}",
                }


@contextlib.contextmanager
def _limited(child: subprocess.Popen[str], limit_s: float) -> Iterator[None]:
    """The process is ended when its time is over, whatever it does: its pipe then ends too."""
    signal.signal(signal.SIGALRM, lambda *_: _end(child))
    signal.setitimer(signal.ITIMER_REAL, max(1.0, limit_s))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _end(child: subprocess.Popen[str]) -> None:
    """End a worker and everything it started; it leads a process group of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


_COLUMNS = (
    ("name", "what", "{}"),
    ("transport", "way", "{}"),
    ("_load", "load", "{}"),
    ("audio_s_per_s", "audio-s/s", "{:.0f}"),
    ("refresh_p50", "refresh p50", "{:.2f}"),
    ("refresh_p95", "p95", "{:.2f}"),
    ("refresh_p99", "p99", "{:.2f}"),
    ("refresh_max", "max", "{:.2f}"),
    ("final_p50", "final p50", "{:.2f}"),
    ("final_p95", "p95 ", "{:.2f}"),
    ("stretch", "stretch", "{:.1f}"),
    ("decodes_per_stream_s", "dec/s", "{:.2f}"),
    ("cached_share", "cached", "{:.0%}"),
    ("wer", "WER %", "{:.1f}"),
    ("gpu", "GPU %", "{:.0f}"),
    ("machine_cores", "cores", "{:.1f}"),
    ("own_cores", "own", "{:.1f}"),
    ("_bad", "failures", "{}"),
)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A Markdown table, one line a measurement."""
    lines = [
        "| " + " | ".join(title.strip() for _, title, _ in _COLUMNS) + " |",
        "|" + "---|" * len(_COLUMNS),
    ]
    for row in rows:
        shown = row | {"_load": _load(row.get("load", {})), "_bad": _bad(row)}
        cells = [layout.format(shown[key]) if key in shown else "" for key, _, layout in _COLUMNS]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _load(load: dict[str, Any]) -> str:
    match load.get("kind"):
        case "burst":
            return f"{load['count']} x {load['seconds']:g} s"
        case "growth":
            return f"turn of {load['turn_s']} s"
        case "live":
            return f"{load['streams']} streams" + (f" + {load['long_s']} s" if load.get("long_s") else "")
    return ""


def _bad(row: dict[str, Any]) -> str:
    parts = [str(row[key]) for key in ("failed", "skipped") if key in row]
    parts += [f"{name} {count}" for name, count in row.get("failures", {}).items()]
    parts += [f"{name} {count}" for name, count in row.get("finishes", {}).items() if name != "stop"]
    parts += [f"{name} {row[name]}" for name in row if name.startswith("alarm")]
    parts += [row["first_error"][:80]] if "first_error" in row else []
    return ", ".join(parts) or "0"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
