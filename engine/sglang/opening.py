"""From settings to a running recognizer on SGLang: its folder, its policy, its transport."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine.contract import EngineError
from engine.policies.opening import OMNI, convert_packaged, open_named, open_serving

from .client import ClientSettings, SglangRecognizer
from .compat import adapt_flags, installed
from .flags import LaunchSettings, environment, plan_flags, refuse
from .http import HttpTransport, omni_body
from .inproc import open_inproc
from .launcher import find_machine
from .transport import Transport

_OMNI_RUNNING = 64
"""Requests that one SGLang-Omni stage decodes at once by default."""
_CPU_RUNNING = 8
"""Requests at once where there is no GPU: it is for tests there."""


def open_recognizer(
    model: str,
    servers: Sequence[str] = (),
    *,
    concurrency: int = 0,
    key: str | None = None,
    launch: LaunchSettings | None = None,
) -> SglangRecognizer:
    """A recognizer over the SGLang `servers`, or over an engine in this process where none are named.

    `model` is a Hugging Face folder or a packaged name; with `servers` it must be what they serve.
    `concurrency` 0 takes what the engine holds at once. Blocks until an engine in this process runs.
    Raises `EngineError`.
    """
    if model in OMNI:
        if not servers:
            raise EngineError("model", f"{model} needs the address of its server", retryable=False)
        omni = HttpTransport(servers, key=key, body=omni_body)
        held = concurrency or _OMNI_RUNNING * len(servers)
        return SglangRecognizer(
            omni, open_named(model), ClientSettings(model=model, concurrency=held, priorities=False)
        )
    folder = serving_folder(model)
    try:
        policy = open_serving(folder)
    except ValueError as error:
        raise EngineError("model", str(error), retryable=False) from error
    launch = launch or LaunchSettings()
    transport: Transport
    if servers:
        transport = HttpTransport(servers, key=key)
        held = launch.running * len(servers)
    else:
        machine = find_machine()
        if not machine.gpu:
            launch = replace(launch, running=min(launch.running, _CPU_RUNNING))
        flags = adapt_flags(plan_flags(policy.facts, machine, launch), installed())
        if reasons := refuse(policy.facts, flags):
            raise EngineError("flags", "; ".join(reasons), retryable=False)
        transport = open_inproc(
            {"model_path": str(folder), **flags}, environment(policy.facts, launch, machine)
        )
        held = launch.running
    settings = ClientSettings(model=model, concurrency=concurrency or held, priorities=launch.priorities)
    return SglangRecognizer(transport, policy, settings)


def serving_folder(model: str) -> Path:
    """The Hugging Face folder of `model`; packaged weights are converted once, into the cache.

    Raises `EngineError` naming what is missing.
    """
    folder = Path(model).expanduser()
    if _is_serving(folder):
        return folder
    from engine.weights import WeightsError, cache_dir, find_weights

    try:
        source = find_weights(model)
        target = cache_dir() / "serving" / source.name if folder.is_dir() else cache_dir() / "serving" / model
        if not _is_serving(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            # Converted beside its place and moved there whole: two processes may start at once.
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".converting-") as work:
                convert_packaged(source, Path(work) / "model")
                if not _is_serving(target):
                    (Path(work) / "model").rename(target)
        return target
    except (WeightsError, ValueError, OSError) as error:
        raise EngineError("model", str(error), retryable=False) from error


def _is_serving(folder: Path) -> bool:
    try:
        return "model_type" in json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
