"""Runs sets of engine configurations one after the other, each in a process of its own; prints a table.

    python -m engine.sglang.bench SET... --model DIR [--audio DIR] [--out FILE] [--budget 570]

Sets: front, tiny, turbo, chunks, turns, smoke (a CPU, a minute). What fails is named and the rest goes on.
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

from .checkpoints import decoder_only, encoder_decoder
from .worker import MARKER, Spec, encoded

_ALLOW_S = 300.0
"""Longest time one configuration may take."""
_NEED_S = 60.0
"""With less time left than this none is started."""

_FRONT = 256
_LIVE = (50, 100, 200, 400, 800)


def live(*streams: int, seconds: float = 10.0, **more: Any) -> tuple[dict[str, Any], ...]:
    return tuple({"kind": "live", "streams": n, "seconds": seconds, **more} for n in streams)


def burst(count: int, seconds: float = 20.0) -> dict[str, Any]:
    return {"kind": "burst", "count": count, "seconds": seconds}


def turns(*seconds: int) -> tuple[dict[str, Any], ...]:
    return tuple({"kind": "growth", "turn_s": s} for s in seconds)


def front(model: str, audio: str | None, _: Path) -> Iterator[Spec]:
    """The same work behind the stock front end and behind ours, then ours as it is used."""
    yield Spec("ours", model, audio=audio, loads=(burst(_FRONT),))
    yield Spec(
        "ours, features on the CPU, full window, 40 tokens",
        model,
        audio=audio,
        launch={"variable_window": False},
        new_tokens=40,
        loads=(burst(_FRONT),),
    )
    yield Spec("stock, 40 tokens", model, audio=audio, stock=True, new_tokens=40, loads=(burst(_FRONT),))


def tiny(model: str, audio: str | None, _: Path) -> Iterator[Spec]:
    yield Spec("real weights", model, audio=audio, loads=live(*_LIVE))
    yield Spec(
        "real weights, 4 tokenizers",
        model,
        "http",
        audio=audio,
        launch={"tokenizers": 4},
        loads=live(200, 400, 800),
    )
    yield Spec(
        "real weights, full window",
        model,
        audio=audio,
        launch={"variable_window": False},
        loads=live(200, 400),
    )


def turbo(model: str, audio: str | None, work: Path) -> Iterator[Spec]:
    folder = str(encoder_decoder(work / "turbo", Path(model)))
    random = {"load_format": "dummy"}
    yield Spec("809 M random", folder, audio=audio, flags=random, new_tokens=12, loads=live(*_LIVE[:4]))
    yield Spec(
        "809 M random, full window",
        folder,
        audio=audio,
        flags=random,
        launch={"variable_window": False},
        new_tokens=12,
        loads=live(100, 200),
    )
    yield Spec(
        "809 M random, 4 tokenizers",
        folder,
        "http",
        audio=audio,
        flags=random,
        launch={"tokenizers": 4},
        new_tokens=12,
        loads=live(200, 400, 800),
    )


def chunks(_: str, audio: str | None, work: Path) -> Iterator[Spec]:
    """Prefill pieces against the delay of live streams, alone and beside a 20 minute request."""
    folder = str(decoder_only(work / "decoder", tiny=False))
    turn = {"turn_s": 24.0}
    beside = live(50, long_s=1190, **turn)
    for chunk, mixed, loads in (
        (2048, False, (*live(50, 100, 200, 400, **turn), *beside)),
        (512, False, beside),
        (8192, False, beside),
        (2048, True, (*live(50, 200, **turn), *beside)),
    ):
        yield Spec(
            f"0.6 B random, pieces of {chunk}" + (", mixed" if mixed else ""),
            folder,
            audio=audio,
            launch={"chunk": chunk, "mixed_chunk": mixed},
            flags={"load_format": "dummy"},
            new_tokens=10,
            loads=loads,
        )


def turn_lengths(_: str, audio: str | None, work: Path) -> Iterator[Spec]:
    folder = str(decoder_only(work / "decoder", tiny=False))
    for name, env in (("windows", {}), ("one item", {"SEAMSCRIBE_SINGLE_ITEM": "1"})):
        yield Spec(
            f"0.6 B random, {name}",
            folder,
            flags={"load_format": "dummy"},
            env=env,
            new_tokens=10,
            loads=turns(5, 5, 10, 20, 40, 60, 120, 300),
        )


def smoke(model: str, audio: str | None, work: Path) -> Iterator[Spec]:
    """Every path of the above at a size that a CPU can run."""
    small = {"running": 8}
    yield Spec(
        "ours",
        model,
        audio=audio,
        launch=small,
        warm_up=2,
        loads=(burst(2), *live(1, seconds=8.0, warm_s=1.0)),
    )
    yield Spec(
        "ours", model, "http", audio=audio, launch=small, warm_up=2, loads=live(1, seconds=8.0, warm_s=1.0)
    )
    yield Spec("stock", model, stock=True, launch=small, new_tokens=5, warm_up=1, loads=(burst(1),))
    folder = str(decoder_only(work / "decoder", tiny=True))
    yield Spec(
        "tiny random",
        folder,
        audio=audio,
        launch={"running": 8, "chunk": 256},
        flags={"load_format": "dummy"},
        new_tokens=4,
        loads=(*turns(24), *live(2, seconds=8.0, warm_s=1.0, long_s=60)),
    )


SETS = {
    "front": front,
    "tiny": tiny,
    "turbo": turbo,
    "chunks": chunks,
    "turns": turn_lengths,
    "smoke": smoke,
}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.sglang.bench", description=__doc__)
    parser.add_argument("sets", nargs="+", choices=SETS)
    parser.add_argument("--model", required=True, help="a Hugging Face folder with real weights")
    parser.add_argument("--audio", help="a folder made by clips.py; noise without one")
    parser.add_argument("--out", type=Path, help="JSON lines, one a measurement")
    parser.add_argument("--logs", type=Path, help="a folder that keeps what each engine wrote")
    parser.add_argument("--budget", type=float, default=570.0, help="seconds for everything")
    options = parser.parse_args(argv)
    end = time.monotonic() + options.budget
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as work:
        for chosen in options.sets:
            for spec in SETS[chosen](options.model, options.audio, Path(work)):
                left = end - time.monotonic()
                if left < _NEED_S:
                    rows.append({"name": spec.name, "transport": spec.transport, "skipped": "no time left"})
                    continue
                log = options.logs and options.logs / f"{len(rows):02d}-{chosen}.log"
                for row in measure(spec, min(left, _ALLOW_S), log):
                    row["set"] = chosen
                    rows.append(row)
                    if options.out:
                        with open(options.out, "a", encoding="utf-8") as file:
                            file.write(json.dumps(row) + "\n")
    sys.stdout.write("\n" + table(rows))
    return 0


def measure(spec: Spec, limit_s: float, kept: Path | None) -> Iterator[dict[str, Any]]:
    """The rows of one worker, as they come; a last one with "failed" where it did not end well."""
    command = [sys.executable, "-m", "engine.sglang.bench.worker", encoded(spec)]
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
    with open(kept, "w+") if kept else tempfile.TemporaryFile("w+", errors="replace") as log:
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
        assert child.stdout is not None
        # The process is ended when its time is over, whatever it does: its pipe then ends too.
        signal.signal(signal.SIGALRM, lambda *_: _end(child))
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        count = 0
        for line in child.stdout:
            if line.startswith(MARKER):
                count += 1
                row = json.loads(line[len(MARKER) :])
                sys.stdout.write(table([row]).splitlines()[-1] + f"  {row['processes']}\n")
                sys.stdout.flush()
                yield row
        signal.setitimer(signal.ITIMER_REAL, 0)
        status = child.wait()
        _end(child)
        if status or count < len(spec.loads):
            log.seek(0)
            tail = log.read()[-3000:]
            sys.stdout.write(
                f"--- {spec.name} ended with {status} after {count} of {len(spec.loads)}\n{tail}\n"
            )
            yield {"name": spec.name, "transport": spec.transport, "failed": f"status {status}"}


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
