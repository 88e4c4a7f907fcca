"""Loads straight on an SGLang-Omni server, without our service, and where each request's time went.

    python -m engine.sglang.bench.omni.direct URL --events DIR --out FILE LOAD...

A LOAD is SECONDSxCONCURRENCYxCOUNT, such as 60x16x32: so many requests of noise, all different, so many at
once, each with a fixed output of `--tokens` a second of audio. The server writes its request events to DIR,
which must be on the same machine; from them come the shares: `build` (all before the queue), `queue`,
`prefill`, `decode`. Of `build` our checkpoint's processor (`processing.py`) tells apart `read` (base64, WAV),
`features` (on the CPU), `prompt` and `encode` (the encoder, and the wait for it).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from engine.sglang.bench.meters import percentile
from engine.sglang.http1 import Endpoint
from engine.sglang.payload import RATE, wav_url

TOKENS_PER_S = 6.45
"""Seeds: 19,366 tokens for 50 minutes of a meeting."""
_PHASES = (
    ("build", "scheduler_request_build_start", "scheduler_request_build_end"),
    ("queue", "scheduler_queue_enter", "scheduler_prefill_start"),
    ("prefill", "scheduler_prefill_start", "scheduler_prefill_end"),
    ("decode", "scheduler_prefill_end", "stage_complete"),
)


FEATURES_START, FEATURES_END, SPANS = "processor_features_start", "processor_features_end", "processor_spans"
"""As in `processing.py`, which lives elsewhere."""
_BUILD = (
    ("read", "scheduler_request_build_start", FEATURES_START),
    ("features", FEATURES_START, FEATURES_END),
    ("prompt", FEATURES_END, SPANS),
    ("encode", SPANS, "scheduler_request_build_end"),
)
"""Parts of `build`."""


async def load(
    url: str, events: Path, *, seconds: float, at_once: int, count: int, tokens: int
) -> dict[str, Any]:
    """One load's row: delays, audio seconds a second, token counts, shares."""
    endpoint = Endpoint(url)
    name = f"{seconds:g}x{at_once}x{count}-{time.time_ns()}"
    folder = events / name
    await _profile(endpoint, "start_request_profile", {"run_id": name, "event_dir": str(folder)})
    gate, dice = asyncio.Semaphore(at_once), np.random.default_rng(time.time_ns())
    answers: list[dict[str, Any]] = []
    delays: list[float] = []

    async def one() -> None:
        async with gate:
            noise = dice.integers(-2000, 2000, round(seconds * RATE)).astype("<i2").tobytes()
            body = await asyncio.to_thread(_body, noise, tokens)
            began = time.monotonic()
            status, answer = await endpoint.fetch("POST", "/generate", body)
            delays.append(time.monotonic() - began)
            answers.append(msgspec.json.decode(answer) if status == 200 else {"failed": status})

    began = time.monotonic()
    await asyncio.gather(*(one() for _ in range(count)))
    took = time.monotonic() - began
    await _profile(endpoint, "stop_request_profile", {"run_id": name})
    endpoint.close()
    metas = [answer["meta_info"] for answer in answers if "meta_info" in answer]
    return {
        "seconds": seconds,
        "at_once": at_once,
        "count": count,
        "failed": [answer["failed"] for answer in answers if "failed" in answer],
        "audio_s_per_s": len(metas) * seconds / took,
        "p50": percentile(delays, 0.5),
        "p95": percentile(delays, 0.95),
        "prompt_tokens": sorted({meta["prompt_tokens"] for meta in metas}),
        "completion_tokens": sorted({meta["completion_tokens"] for meta in metas}),
        "finishes": sorted({meta["finish_reason"]["type"] for meta in metas}),
        "phases_s": phases(_events(folder)),
    }


def phases(events: Iterator[Mapping[str, Any]]) -> dict[str, float]:
    """Mean seconds a request spent in each phase."""
    seen: dict[str, dict[str, int]] = defaultdict(dict)
    for event in events:
        # The first of a kind: a stage tells its end twice where it streams.
        seen[event["request_id"]].setdefault(event["event_name"], event["timestamp_ns"])
    spent: dict[str, list[float]] = defaultdict(list)
    at: dict[str, list[int]] = defaultdict(list)
    for times in seen.values():
        for phase, first, last in _PHASES:
            if first in times and last in times:
                spent[phase].append((times[last] - times[first]) / 1e9)
        for name, when in times.items():
            at[name].append(when)
    found = {phase: sum(values) / len(values) for phase, values in spent.items()}
    return found | {
        phase: _between(at[first], at[last]) for phase, first, last in _BUILD if at[first] and at[last]
    }


def _between(first: Sequence[int], last: Sequence[int]) -> float:
    """Mean seconds from one point to the next of all requests: our processor does not know whose it is, but
    every request passes each point once. Raises `ValueError` where that is not so."""
    if len(first) != len(last):
        raise ValueError(f"{len(first)} requests began a part of their build and {len(last)} ended it")
    return (sum(last) - sum(first)) / len(first) / 1e9


def shares(spent: Mapping[str, float]) -> dict[str, float]:
    """Of a request's time in the engine without its waiting, as in the seeds' table; percent."""
    whole = ("build", "prefill", "decode")
    total = sum(spent.get(phase, 0.0) for phase in whole)
    parts = [phase for phase, _, _ in _BUILD if phase in spent]
    return {p: 100 * spent.get(p, 0.0) / total for p in (*whole, *parts)} if total else {}


def _body(pcm: bytes, tokens: int) -> bytes:
    return msgspec.json.encode(
        {
            "prompt": "请将音频转写为文本",
            "metadata": {"audio_data": wav_url(pcm)},
            "sampling_params": {"max_new_tokens": tokens, "temperature": 0.0},
            "return_logprob": False,
        }
    )


async def _profile(endpoint: Endpoint, route: str, body: dict[str, Any]) -> None:
    status, answer = await endpoint.fetch("POST", f"/{route}", msgspec.json.encode(body))
    if status != 200:
        sys.stderr.write(f"{route}: {status} {answer[:200]!r}\n")
    await asyncio.sleep(0.5)


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.glob("*.jsonl")):
        with open(file, encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m engine.sglang.bench.omni.direct", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("loads", nargs="+", metavar="LOAD")
    parser.add_argument("--events", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one a load")
    parser.add_argument("--tokens", type=float, default=TOKENS_PER_S, help="of output a second of audio")
    options = parser.parse_args(argv)
    for text in options.loads:
        seconds, at_once, count = text.split("x")
        row = asyncio.run(
            load(
                options.url,
                options.events,
                seconds=float(seconds),
                at_once=int(at_once),
                count=int(count),
                tokens=max(1, math.ceil(options.tokens * float(seconds))),
            )
        )
        row["shares"] = shares(row["phases_s"])
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
        with open(options.out, "a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
