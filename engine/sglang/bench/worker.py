"""One engine, one way to reach it, some loads on it: run as a process of its own by `__main__`.

Its argument is a JSON object (see `Spec`); its result is one JSON line a load, after the marker `@row `.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.contract import Hypothesis, RecognitionTask
from engine.dispatcher import Dispatcher, DispatchSettings
from engine.guards import GuardLimits
from engine.policies.opening import open_serving
from engine.policies.serving import Ask, ModelFacts, Reply, ServingPolicy
from engine.sglang.client import ClientSettings, SglangRecognizer
from engine.sglang.compat import adapt_flags, installed
from engine.sglang.flags import LaunchSettings, as_arguments, environment, plan_flags
from engine.sglang.http import HttpSettings, HttpTransport
from engine.sglang.inproc import open_inproc
from engine.sglang.launcher import find_machine
from engine.sglang.transport import Transport

from . import stock
from .clips import Clip, joined, load_clips
from .growth import growth
from .load import LivePlan, Tally, beside, burst, live
from .meters import Usage, metered, percentile
from .stacks import sampled

MARKER = "@row "
READY = "@ready"
"""Written when the engine serves; what is to be measured begins when a line comes back."""
_START_S = 300.0


@dataclass(frozen=True, slots=True)
class Spec:
    """`loads` are objects: {"kind": "burst" | "live" | "growth", ...}."""

    name: str
    model: str
    transport: str = "inproc"
    launch: dict[str, Any] = field(default_factory=dict)
    flags: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    new_tokens: int | None = None
    """Fixed output length, for random weights."""
    stock: bool = False
    """SGLang as it is, without our plugin."""
    audio: str | None = None
    warm_up: int = 24
    """Utterances decoded at once before anything is measured."""
    loads: tuple[dict[str, Any], ...] = ()
    port: int = 31000
    profile: str | None = None
    """A folder for samples of the schedulers' stacks; needs `py-spy` on the path."""


class Fixed:
    """A policy whose outputs have one length and set off no alarm: random weights say nothing."""

    def __init__(self, inner: ServingPolicy, tokens: int) -> None:
        self._inner = inner
        self._tokens = tokens

    @property
    def facts(self) -> ModelFacts:
        return self._inner.facts

    def ask(self, task: RecognitionTask, language: str | None) -> Ask:
        quiet = GuardLimits(audio_s=1e6, rounds=10**6, single_rounds=10**6)
        return replace(self._inner.ask(task, language), max_new_tokens=self._tokens, guard=quiet)

    def detection(self, task: RecognitionTask) -> Ask | None:
        return None

    def heard(self, reply: Reply) -> tuple[str | None, float]:
        return None, 0.0

    def astray(self, ask: Ask, reply: Reply) -> str | None:
        return None

    def read(self, task: RecognitionTask, ask: Ask, reply: Reply) -> Hypothesis:
        return Hypothesis(())


@asynccontextmanager
async def engine(spec: Spec) -> AsyncIterator[tuple[SglangRecognizer, float]]:
    """The engine of `spec`, and how long its start took."""
    folder = Path(spec.model)
    policy = open_serving(folder)
    launch = LaunchSettings(**({"running": 512, "queued": 4096} | spec.launch))
    machine = find_machine()
    flags = adapt_flags(plan_flags(policy.facts, machine, launch), installed())
    # Its own lines on batches and queues, for the log that is kept.
    flags |= {"log_level": "info", **spec.flags}
    added = {} if spec.stock else environment(policy.facts, launch, machine)
    added |= spec.env
    began = time.monotonic()
    child: subprocess.Popen[bytes] | None = None
    transport: Transport
    if spec.stock:
        transport = stock.open_stock(folder, flags, added)
    elif spec.transport == "http":
        child, transport = await _serve(spec, folder, flags, added)
    else:
        transport = await asyncio.to_thread(open_inproc, {"model_path": str(folder), **flags}, added)
    held = ClientSettings(
        model=spec.name, concurrency=launch.running, deadline_s=60.0, schedulers=launch.schedulers
    )
    used: ServingPolicy = policy if spec.new_tokens is None else Fixed(policy, spec.new_tokens)
    recognizer = SglangRecognizer(transport, used, held)
    try:
        yield recognizer, time.monotonic() - began
    finally:
        await recognizer.close()
        if child is not None:
            child.terminate()
            child.wait(30)


async def _serve(
    spec: Spec, folder: Path, flags: dict[str, Any], added: dict[str, str]
) -> tuple[subprocess.Popen[bytes], Transport]:
    command = [sys.executable, "-m", "engine.sglang.schedulers", "--model-path", str(folder)]
    command += as_arguments({**flags, "port": spec.port, "skip_server_warmup": True})
    child = await asyncio.to_thread(
        subprocess.Popen, command, env=os.environ | added, stdout=sys.stderr.fileno()
    )
    transport = HttpTransport([f"http://127.0.0.1:{spec.port}"], HttpSettings(stall_s=60.0))
    began = time.monotonic()
    while not await transport.healthy():
        await asyncio.sleep(0.5)
        if child.poll() is not None or time.monotonic() - began > _START_S:
            raise RuntimeError("the server did not start")
    return child, transport


async def run(spec: Spec) -> None:
    async with engine(spec) as (recognizer, start_s):
        # Kernels are compiled and sizes met for the first time here, not inside a measurement.
        warm = load_clips(Path(spec.audio) if spec.audio else None)
        for count in (1, spec.warm_up):
            await burst(recognizer.recognize, (warm * count)[:count], Tally())
        sys.stdout.write(READY + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        for load in spec.loads:
            clips = load_clips(Path(spec.audio) if spec.audio else None)
            if turn_s := load.get("turn_s") if load["kind"] == "live" else None:
                clips = joined(clips, turn_s, 16)
            before = dict(recognizer.counters)
            async with (
                metered() as usage,
                sampled(spec.profile if load.get("stacks") else None, spec.name, load.get("seconds", 0.0)),
            ):
                row = await _load(recognizer, clips, load)
            alarms = {
                name: count - before.get(name, 0)
                for name, count in recognizer.counters.items()
                if name.startswith("alarm") and count > before.get(name, 0)
            }
            _emit(spec, load, row | alarms, usage, start_s)


async def _load(recognizer: SglangRecognizer, clips: list[Clip], load: dict[str, Any]) -> dict[str, Any]:
    match load["kind"]:
        case "burst":
            whole = joined(clips, load["seconds"], load["count"])
            tally = Tally()
            seconds = await burst(recognizer.recognize, whole, tally)
            return {"audio_s_per_s": load["count"] * load["seconds"] / seconds, **_summary(tally)}
        case "growth":
            return await growth(recognizer, load["turn_s"], load.get("most", 12))
        case _:
            return await _live(recognizer, clips, load)


async def _live(recognizer: SglangRecognizer, clips: list[Clip], load: dict[str, Any]) -> dict[str, Any]:
    dispatcher = Dispatcher(recognizer, DispatchSettings(queue=8192))
    plan = LivePlan(load["streams"], load["seconds"], load.get("warm_s", 4.0))
    stop, long_s = asyncio.Event(), load.get("long_s", 0)
    async with asyncio.TaskGroup() as group:
        other = None
        if long_s:
            noise = np.random.default_rng(3).standard_normal(long_s * 16_000).astype(np.float32) * 0.05
            other = group.create_task(beside(dispatcher, noise, stop))
        tally = await live(dispatcher, clips, plan)
        stop.set()
        if other is not None:
            other.cancel()
    served = sum(len(delays) for delays in tally.delays.values())
    return {
        "audio_s_per_s": load["streams"],
        "decodes_per_stream_s": served / (load["streams"] * load["seconds"]),
        "stretch": dispatcher.load.stretch,
        **_summary(tally),
    }


def _summary(tally: Tally) -> dict[str, Any]:
    row: dict[str, Any] = {}
    partial = tally.delays["first"] + tally.delays["refresh"]
    for kind, delays in (("refresh", partial), ("final", tally.delays["final"])):
        if delays:
            row |= {
                f"{kind}_n": len(delays),
                f"{kind}_p50": percentile(delays, 0.5),
                f"{kind}_p95": percentile(delays, 0.95),
                f"{kind}_p99": percentile(delays, 0.99),
                f"{kind}_max": max(delays),
            }
    row["failures"] = dict(tally.failures)
    row["finishes"] = dict(tally.finishes)
    if tally.first_error:
        row["first_error"] = tally.first_error[:300]
    if tally.spoken:
        row["wer"] = 100.0 * tally.errors / tally.spoken
    return row


def _emit(spec: Spec, load: dict[str, Any], row: dict[str, Any], usage: Usage, start_s: float) -> None:
    found = {
        "name": spec.name,
        "transport": "stock" if spec.stock else spec.transport,
        "load": load,
        "start_s": start_s,
        **row,
        "gpu": usage.gpu,
        "gpu_mib": usage.gpu_mib,
        "machine_cores": usage.machine_cores,
        "own_cores": usage.own_cores,
        "processes": usage.processes,
    }
    sys.stdout.write(MARKER + json.dumps(found) + "\n")
    sys.stdout.flush()


def encoded(spec: Spec) -> str:
    return json.dumps(asdict(spec))


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    asyncio.run(run(Spec(**given | {"loads": tuple(given["loads"])})))
