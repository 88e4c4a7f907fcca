"""From settings to a running recognizer on SGLang: its folder, its policy, its transport."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine.contract import EngineError
from engine.policies.opening import OMNI, open_named, open_serving
from engine.policies.serving import ModelFacts
from engine.tuning import Row, see

from .client import ClientSettings, SglangRecognizer
from .compat import adapt_flags, installed
from .flags import LaunchSettings, environment, plan_flags, refuse
from .folders import serving_folder
from .http import HttpTransport
from .inproc import open_inproc
from .launcher import find_machine, weights_of, what_fits
from .omni.form import Omni
from .transport import Transport

_OMNI_RUNNING = 64
"""Requests that one SGLang-Omni stage decodes at once by default."""
OMNI_STREAM_FROM = 1024
"""Output budget from which one is watched and stopped while it runs, at the price of not being told how it
ended: those of live windows are less, and cost seconds at the most."""
_CPU_RUNNING = 8
"""Requests at once where there is no GPU: it is for tests there."""


def open_recognizer(
    model: str,
    servers: Sequence[str] = (),
    *,
    recordings: Sequence[str] = (),
    concurrency: int = 0,
    key: str | None = None,
    launch: LaunchSettings | None = None,
) -> SglangRecognizer:
    """A recognizer over the SGLang `servers`, or over an engine in this process where none are named.

    `model` is a Hugging Face folder or a packaged name; with `servers` it must be what they serve.
    `recordings` are servers that decode recordings instead of them.
    `concurrency` 0 takes what the engine holds at once. Blocks until an engine in this process runs.
    Raises `EngineError`.
    """
    if model in OMNI:
        return _over_omni(model, servers, recordings, concurrency, key)
    folder = serving_folder(model)
    try:
        policy = open_serving(folder)
    except ValueError as error:
        raise EngineError("model", str(error), retryable=False) from error
    launch = launch or LaunchSettings()
    transport: Transport
    if servers:
        transport = HttpTransport(servers, key=key, recordings=recordings)
        held = launch.running * len(servers)
    else:
        launch, transport = _in_process(folder, policy.facts, launch)
        held = launch.running
    held = concurrency or held
    settings = ClientSettings(
        model,
        held,
        priorities=launch.priorities,
        schedulers=launch.schedulers,
        engines=max(1, len(servers) + len(recordings)),
        recording_engines=len(recordings),
    )
    return SglangRecognizer(transport, policy, settings)


def _in_process(folder: Path, facts: ModelFacts, launch: LaunchSettings) -> tuple[LaunchSettings, Transport]:
    """An engine in this process, and how it was launched after all."""
    machine = find_machine()
    if not machine.gpu:
        launch = replace(launch, running=min(launch.running, _CPU_RUNNING))
    flags = adapt_flags(plan_flags(facts, machine, launch), installed())
    if reasons := refuse(facts, flags):
        raise EngineError("flags", "; ".join(reasons), retryable=False)
    found = what_fits(
        facts,
        machine,
        launch,
        weights_gib=weights_of(folder),
        fraction=launch.memory_fraction,
    )
    if found.problem is not None:
        rows = see(Row.START_MEMORY, Row.RUN_MEMORY)
        raise EngineError("memory", f"{found.problem}; {rows}", retryable=False)
    transport = open_inproc({"model_path": str(folder), **flags}, environment(facts, launch, machine))
    return launch, transport


def _over_omni(
    model: str, servers: Sequence[str], recordings: Sequence[str], concurrency: int, key: str | None
) -> SglangRecognizer:
    """Over SGLang-Omni's servers, which serve models that SGLang's own does not."""
    if not servers:
        raise EngineError("model", f"{model} needs the address of its server", retryable=False)
    policy = open_named(model)
    form = Omni(generates=policy.facts.generates)
    omni = HttpTransport(servers, key=key, form=form, recordings=recordings)
    held = concurrency or _OMNI_RUNNING * len(servers)
    settings = ClientSettings(
        model,
        held,
        priorities=False,
        stream_from=OMNI_STREAM_FROM,
        engines=len(servers) + len(recordings),
        recording_engines=len(recordings),
    )
    return SglangRecognizer(omni, policy, settings)
