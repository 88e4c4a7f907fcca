"""Which flags SGLang is started with, from a model's facts and the machine; and which sets are refused.

PURE. Nothing here knows a model's name: only whether its prompt may be cut, whether its beginning is found
again, how many bytes a position takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.policies.serving import ModelFacts

from .compat import DECODE_ROUNDS
from .windows import DEVICE_FRONT_END

PROCESSORS = "engine.sglang.plugin"
MODELS = "engine.sglang.models"


_SHARED = 0.45
"""Share of the memory for the caches of all schedulers of one GPU, where the operator says none."""
_PROMPT = 64
"""Prompt tokens a request that a prefill batch is sized for."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the engine runs. `memory_gib` is one GPU's memory, None on a CPU. `flash_attention` tells
    whether FlashAttention-3 is installed, which SGLang takes by default on Hopper."""

    memory_gib: float | None = None
    flash_attention: bool = True

    @property
    def gpu(self) -> bool:
        return self.memory_gib is not None


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """What an operator chooses. `chunk` is the *scheduler's* number: tokens prefilled between two decode
    steps of live streams; it has nothing to do with what the model takes."""

    running: int = 256
    """Requests decoded at once."""
    queued: int = 1024
    """Requests waiting in the engine; more are refused with 503."""
    chunk: int = 2048
    mixed_chunk: bool = False
    """Prefill pieces and decode steps share batches."""
    memory_fraction: float | None = None
    """Share of the GPU's memory for weights and KV cache; None leaves it to SGLang."""
    decode_rounds: int = 8
    """Decode steps between two prefill batches while anything is being decoded; 0: prefill comes first,
    always, and hundreds of live streams decode nothing while audio comes in."""
    prefill_batch: int = 64
    """Requests whose audio is encoded together, where prompts are not cut into pieces."""
    priorities: bool = True
    variable_window: bool = True
    """Our model package: encode the spoken window instead of the full one."""
    schedulers: int = 1
    """Scheduler processes that share the GPU, each with its own copy of the weights and its own cache."""
    tokenizers: int = 1
    """Tokenizer processes behind one HTTP server; each runs the front end."""
    port: int = 30000


def plan_flags(facts: ModelFacts, machine: Machine, settings: LaunchSettings) -> dict[str, Any]:
    """Flags by their `ServerArgs` names, without the model's path."""
    flags: dict[str, Any] = {
        "max_running_requests": settings.running,
        "max_queued_requests": settings.queued,
        "stream_interval": 8,
        # Otherwise its scheduler polls: one core at 100 %, whether there is anything to do or not.
        "sleep_on_idle": True,
        # Its warm-up sends text only, or a picture.
        "skip_server_warmup": True,
        "log_level": "warning",
    }
    if settings.decode_rounds:
        flags |= {"prefill_decode_interval": settings.decode_rounds, "prefill_decode_interval_min_bs": 1}
    if settings.priorities:
        # Preempting throws away what a stream has decoded, for a request that is served next anyway.
        flags |= {"enable_priority_scheduling": True, "disable_priority_preemption": True}
    if facts.chunked_prefill:
        flags["chunked_prefill_size"] = settings.chunk
        if settings.mixed_chunk and machine.gpu:
            flags["enable_mixed_chunk"] = True
    else:
        flags["chunked_prefill_size"] = -1
        # Without pieces this is what bounds a batch: encoder positions and some prompt for each request.
        positions = round(facts.native_s * facts.audio_tokens_per_s) + _PROMPT
        flags["max_prefill_tokens"] = settings.prefill_batch * positions
    if not facts.prefix_cache:
        flags["disable_radix_cache"] = True
    if settings.memory_fraction is not None:
        flags["mem_fraction_static"] = settings.memory_fraction
    if settings.tokenizers > 1:
        flags["tokenizer_worker_num"] = settings.tokenizers
    if settings.schedulers > 1:
        flags |= _shared(facts, machine, settings)
    return flags | (_gpu(machine) if machine.gpu else _cpu(settings))


def _shared(facts: ModelFacts, machine: Machine, settings: LaunchSettings) -> dict[str, Any]:
    """Several schedulers on one GPU. Each measures the free memory while the others take theirs, so the size
    of its cache is said in positions instead."""
    flags: dict[str, Any] = {"dp_size": settings.schedulers}
    if machine.memory_gib is not None and facts.kv_bytes_per_token is not None:
        share = (settings.memory_fraction or _SHARED) * machine.memory_gib * 2**30 / settings.schedulers
        flags |= {"max_total_tokens": round(share / facts.kv_bytes_per_token), "mem_fraction_static": 0.9}
    return flags


def _gpu(machine: Machine) -> dict[str, Any]:
    if machine.flash_attention:
        return {}
    return {"attention_backend": "flashinfer", "mm_attention_backend": "triton_attn"}


def _cpu(settings: LaunchSettings) -> dict[str, Any]:
    flags: dict[str, Any] = {
        "device": "cpu",
        "dtype": "float32",
        "attention_backend": "torch_native",
        "disable_overlap_schedule": True,
        "max_total_tokens": 20_000,
        "max_prefill_tokens": 16_384,
    }
    # On a CPU the default is computed from GPU numbers and comes out negative.
    return flags if settings.memory_fraction is not None else flags | {"mem_fraction_static": 0.3}


def refuse(facts: ModelFacts, flags: Mapping[str, Any]) -> list[str]:
    """Why SGLang must not be started so; empty where nothing speaks against it."""
    reasons: list[str] = []
    chunk = flags.get("chunked_prefill_size")
    if not facts.chunked_prefill and (chunk is None or int(chunk) > 0):
        size = "the default" if chunk is None else str(chunk)
        reasons.append(
            f"chunked_prefill_size {size}: the scheduler would cut this model's encoder block and stop with"
            " an assertion as soon as a few requests are batched; it must be -1"
        )
    if not facts.chunked_prefill and flags.get("enable_mixed_chunk"):
        reasons.append("enable_mixed_chunk: needs chunked prefill, which this model cannot have")
    if not facts.prefix_cache and flags.get("disable_radix_cache") is False:
        reasons.append("the prefix cache: this model's prompts begin with audio that never repeats")
    if facts.chunked_prefill and chunk is not None and 0 < int(chunk) < 128:
        reasons.append(f"chunked_prefill_size {chunk}: pieces this small cost more than they interleave")
    most = flags.get("context_length")
    if most is not None and int(most) > facts.context_tokens:
        reasons.append(
            f"context_length {most}: the model has {facts.context_tokens} positions; beyond them it writes"
            " nonsense without an error"
        )
    if flags.get("is_embedding") or flags.get("skip_tokenizer_init"):
        reasons.append("skip_tokenizer_init and is_embedding: transcripts need text")
    if str(flags.get("device", "")) == "cpu" and not flags.get("mem_fraction_static"):
        reasons.append("no mem_fraction_static on a CPU: SGLang computes a negative one and does not start")
    return reasons


def environment(facts: ModelFacts, settings: LaunchSettings, machine: Machine) -> dict[str, str]:
    """Variables that make SGLang load our plugin."""
    found = {
        "SGLANG_EXTERNAL_MM_PROCESSOR_PACKAGE": PROCESSORS,
        DECODE_ROUNDS: str(settings.decode_rounds),
    }
    if facts.chunked_prefill:
        found["SGLANG_EXTERNAL_MODEL_PACKAGE"] = MODELS
    elif settings.variable_window:
        found |= {"SGLANG_EXTERNAL_MODEL_PACKAGE": MODELS, DEVICE_FRONT_END: "1"}
    if not machine.gpu:
        # Two threads that spin for each other on a shared CPU are ten times slower than one.
        found |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return found


def as_arguments(flags: Mapping[str, Any]) -> list[str]:
    """Flags as `sglang.launch_server` takes them; switched-off ones are left out."""
    out: list[str] = []
    for name, value in flags.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            out.append(option)
        elif value is not False and value is not None:
            out += [option, str(value)]
    return out


def parse_arguments(arguments: list[str]) -> dict[str, Any]:
    """The operator's own flags after `--`, by `ServerArgs` name; raises `ValueError` for anything else."""
    found: dict[str, Any] = {}
    index = 0
    while index < len(arguments):
        option, given, value = arguments[index].partition("=")
        if not option.startswith("--") or len(option) < 3:
            raise ValueError(f"{arguments[index]!r} is not a flag: SGLang's begin with --")
        name = option[2:].replace("-", "_")
        follows = index + 1 < len(arguments) and not arguments[index + 1].startswith("--")
        if given:
            found[name] = value
        elif follows:
            index += 1
            found[name] = arguments[index]
        else:
            found[name] = True
        index += 1
    return found
