"""How much fits into a GPU's memory: positions of KV cache, live streams, length of a recording. PURE."""

from __future__ import annotations

import math
from dataclasses import dataclass

GIB = 1024**3


def bytes_per_token(layers: int, kv_heads: int, head_dim: int, *, width: int = 2) -> int:
    """KV cache that one position takes: a key and a value in every layer; `width` bytes a number."""
    return 2 * layers * kv_heads * head_dim * width


def capacity(
    memory_gib: float, fraction: float, per_token: int, *, weights_gib: float, overhead_gib: float
) -> int:
    """Positions that fit where `fraction` of the memory is set aside for weights, overhead and cache."""
    free = fraction * memory_gib - weights_gib - overhead_gib
    return max(0, math.floor(free * GIB / per_token))


@dataclass(frozen=True, slots=True)
class Load:
    """What one request takes. Tokens; `audio_tokens_per_s` is the model's."""

    audio_tokens_per_s: float
    prompt: int = 64
    """Text around the audio: instructions, context, forced words."""
    output_per_s: float = 8.0

    def tokens(self, seconds: float, *, output: int | None = None) -> int:
        """Positions of one request over `seconds` of audio."""
        spoken = math.ceil(self.output_per_s * seconds) if output is None else output
        return math.ceil(self.audio_tokens_per_s * seconds) + self.prompt + spoken


def streams(positions: int, load: Load, *, window_s: float, overlap: float = 1.0) -> int:
    """Live streams whose windows fit at once; `overlap` is the share of streams in the engine at a time."""
    each = load.tokens(window_s)
    return int(positions / (each * overlap)) if each else 0


def longest_s(positions: int, load: Load, *, output: int | None = None, native_s: float = math.inf) -> float:
    """Longest recording in seconds that one request can hold, output included, at most `native_s`.

    `output` is a fixed output budget; without it the budget grows with the audio.
    """
    if output is None:
        seconds = (positions - load.prompt) / (load.audio_tokens_per_s + load.output_per_s)
    else:
        seconds = (positions - load.prompt - output) / load.audio_tokens_per_s
    return min(max(seconds, 0.0), native_s)


@dataclass(frozen=True, slots=True)
class Advice:
    """A memory plan and what speaks against it."""

    positions: int
    idle_gib: float
    """Memory in use once started."""
    peak_gib: float
    """The same while requests run."""
    problem: str | None


def check(
    memory_gib: float,
    fraction: float,
    per_token: int,
    *,
    weights_gib: float,
    overhead_gib: float,
    dynamic_gib: float,
    need: int,
) -> Advice:
    """Whether `need` positions fit at once and the peak stays inside the memory.

    A larger fraction gives more positions and leaves less for what is allocated while requests run
    (`dynamic_gib`: features, activations), so it can be wrong in both directions.
    """
    positions = capacity(memory_gib, fraction, per_token, weights_gib=weights_gib, overhead_gib=overhead_gib)
    idle = fraction * memory_gib + overhead_gib
    peak = idle + dynamic_gib
    problem = None
    if peak > memory_gib:
        problem = (
            f"the peak of {peak:.1f} GiB exceeds the {memory_gib:g} GiB there are:"
            f" lower mem_fraction_static below {fraction:g} (needs a restart)"
        )
    elif need > positions:
        problem = (
            f"{need} positions are needed and {positions} fit: raise mem_fraction_static above {fraction:g}"
            " (needs a restart), shorten the audio of a request, or lower its output budget"
        )
    return Advice(positions, idle, peak, problem)
