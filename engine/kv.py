"""How much fits into a GPU's memory: positions of KV cache, live streams, length of a recording. PURE."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .tuning import Row

GIB = 1024**3

OVERHEAD_GIB = 1.3
"""What the engine holds beside weights and cache (seeds: 28 layers in bf16, 16 and 24 GiB)."""
FRACTION = 0.8
"""What is counted with where the fraction is left to the engine."""
RECORDING_GIB_PER_S = 5.3 / 3000
"""Features and activations of one long recording while it is read: inferred from 50 minutes on 24 GiB, where
0.80 ran out of memory, taken as proportional. 16 GiB at 0.80 were seen to hold what this forbids, so it only
warns."""


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


@dataclass(frozen=True, slots=True)
class Fit:
    """What a GPU holds, in sentences for an operator, and why it must not be started so, if it must not."""

    lines: tuple[str, ...]
    problem: str | None = None
    risks: tuple[tuple[str, Row], ...] = ()
    """What may go wrong later, and the row of the tuning table that helps."""


def fit(
    load: Load,
    per_token: int,
    *,
    memory_gib: float,
    fraction: float,
    weights_gib: float,
    native_s: float,
    window_s: float,
    running: int,
    recording_s: float = 0.0,
) -> Fit:
    """Live streams and the longest recording that fit; `recording_s` must fit as one request, 0 for none.

    `window_s` is the audio of one live request, `running` how many the engine may decode at once.
    """
    longest = max(window_s, min(recording_s, native_s))
    advice = check(
        memory_gib,
        fraction,
        per_token,
        weights_gib=weights_gib,
        overhead_gib=OVERHEAD_GIB,
        dynamic_gib=0.0,
        need=load.tokens(longest),
    )
    peak_gib = advice.idle_gib + longest * RECORDING_GIB_PER_S
    live = streams(advice.positions, load, window_s=window_s)
    lines = [
        f"KV cache: {per_token} bytes a position, {advice.positions} positions at mem_fraction_static"
        f" {fraction:g} of {memory_gib:g} GiB ({weights_gib:.1f} GiB of weights)",
        f"memory: {advice.idle_gib:.1f} GiB once started, about {peak_gib:.1f} while it reads {longest:g} s",
        f"live: {live} requests of {window_s:g} s at once",
        f"recordings: {longest_s(advice.positions, load, native_s=native_s):.0f} s in one request",
    ]
    problem = advice.problem
    if recording_s > native_s:
        problem = f"recordings of {recording_s:g} s: the model takes {native_s:g} s in one request"
    risks = []
    if peak_gib > memory_gib:
        risks.append((f"{longest:g} s in one request may run out of memory", Row.RUN_MEMORY))
    if live < running:
        risks.append((f"{running} requests may run and {live} fit at once: some will wait", Row.WAITING))
    return Fit(tuple(lines), problem, tuple(risks))
