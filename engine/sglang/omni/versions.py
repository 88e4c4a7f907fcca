"""All that differs between the versions of SGLang-Omni that we start: their pins, their configuration files.

Requests are the same for both; what one of them ignores is said here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Version = tuple[int, ...]

STAGES_IN_FILE: Version = (0, 1, 9)
"""From here on a configuration file lists stages; before, overrides of a stage's factory."""

GATHER_MS = 40
"""Only while others are decoded or read: a request that comes alone waits for nobody."""

PINS: Mapping[Version, Mapping[str, str]] = {
    (0, 1, 3): {"sglang": "0.5.16", "torch": "2.11.0", "flashinfer-python": "0.6.14"},
    (0, 1, 9): {"sglang": "0.5.22", "torch": "2.14.1", "flashinfer-python": "0.7.1"},
}
"""What each was published for; with any other SGLang it may start and fail on the first request."""
NEWEST = max(PINS)
PYTHON = (3, 12)
"""The newest Python that both run on."""


@dataclass(frozen=True, slots=True)
class Stage:
    """How the one stage of a recognizer is to run."""

    running: int
    """Requests decoded at once."""
    attention_backend: str | None = None
    """None leaves it to SGLang, which takes FlashAttention-3 on Hopper."""
    prefix_cache: bool = True
    """Whether prompts' beginnings are found again in the KV cache, and so kept there."""
    gather: int = 0
    """Requests that it waits for, `GATHER_MS` at most, before it prefills them together; 0: as by itself."""
    compile: bool = False
    """torch.compile, at the price of minutes at the start."""


def parsed(text: str) -> Version:
    """2.11.0+cu130 as (2, 11, 0)."""
    return tuple(int(part) for part in text.partition("+")[0].split(".")[:3] if part.isdigit())


def shown(version: Version) -> str:
    return ".".join(map(str, version))


def wrong(installed: Mapping[str, str]) -> list[str]:
    """What stands against a start with these distributions: one that is missing, or another version than it
    was published for. Empty where nothing does."""
    if "sglang-omni" not in installed:
        return ["sglang-omni is not installed"]
    version = parsed(installed["sglang-omni"])
    pins = PINS.get(version)
    if pins is None:
        known = " and ".join(map(shown, PINS))
        return [f"sglang-omni {installed['sglang-omni']} is not known here: {known} are"]
    faults = []
    for name, wanted in pins.items():
        found = installed.get(name)
        if found is None:
            faults.append(f"{name} is not installed: sglang-omni {shown(version)} needs {wanted}")
        elif parsed(found) != parsed(wanted):
            faults.append(f"{name} is {found}: sglang-omni {shown(version)} needs {wanted}")
    return faults


def config(version: Version, pipeline: str, model: str, stage: Stage) -> dict[str, Any]:
    """The configuration file of one model on the GPU, as JSON, which is YAML."""
    server: dict[str, Any] = {}
    if stage.attention_backend is not None:
        server["attention_backend"] = stage.attention_backend
    if not stage.prefix_cache:
        server["disable_radix_cache"] = True
    # Of more requests that wait while others are read the server answers 503.
    factory: dict[str, Any] = {"request_build_max_pending": 2 * stage.running}
    if stage.gather:
        factory |= {"prefill_coalesce_requests": stage.gather, "prefill_coalesce_wait_ms": GATHER_MS}
    whole: dict[str, Any] = {"config_cls": pipeline, "model_path": model}
    if version < STAGES_IN_FILE:
        return whole | {
            "runtime_overrides": {
                "asr": {
                    "enable_torch_compile": stage.compile,
                    "max_running_requests": stage.running,
                    "server_args_overrides": server,
                    **factory,
                }
            }
        }
    engine = {"max_running_requests": stage.running, "enable_torch_compile": stage.compile, **server}
    return whole | {"stages": {"asr": {"engine": engine, "factory": factory}}}
