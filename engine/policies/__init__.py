"""What is known about each model family, apart from the mechanism that runs it.

A policy is data and pure functions: prompt, limits, output grammar. It is loaded only when asked for, so
that a deployment pays for the one it runs.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

POLICIES: dict[str, str] = {
    "whisper": "engine.policies.whisper:WhisperPolicy",
    "qwen3_asr": "engine.policies.qwen3_asr:Qwen3AsrServing",
    "moss_td": "engine.policies.moss_td:MossTdServing",
    "fun_asr": "engine.policies.fun_asr:FunAsrServing",
}
"""Policy name -> "module:attribute"."""


def load_policy(name: str) -> Any:
    """The policy class registered as `name`; raises `LookupError` naming those there are."""
    try:
        module, attribute = POLICIES[name].split(":")
    except KeyError:
        raise LookupError(f"no policy {name!r}; there are: {', '.join(sorted(POLICIES))}") from None
    return getattr(import_module(module), attribute)
