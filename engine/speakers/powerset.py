"""From the segmentation's class probabilities to who is heard in which step of 20 ms. PURE.

The network names, for each of its frames, which of at most three local speakers speak, at most two at once:
one class a set. A speaker's probability is the sum over the sets it is in. All that follows counts in steps
of the embedding, `STEP` samples: a mask says both where a voice is heard and what its vector is made of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.contract import SAMPLE_RATE, Span

STEP = 320
"""Samples of one step; step i is heard around sample STEP * i + _MIDDLE."""
_MIDDLE = 200
_FRAME, _FRAME_MIDDLE = 270, 495
"""The same of the segmentation's frames (991 samples each)."""
_MEMBERS = np.array(
    [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1]], dtype=np.float32
)
"""Which speakers are in each of the 7 classes."""

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ActivitySettings:
    """When a local speaker counts as heard; measured in `README.md`."""

    on: float = 0.5
    off: float = 0.45
    """Probabilities at which activity begins and ends."""
    shortest_s: float = 0.15
    """Shorter activity is dropped."""
    gap_s: float = 0.1
    """Shorter pauses are bridged."""

    def __post_init__(self) -> None:
        if not 0.0 < self.off <= self.on < 1.0:
            raise ValueError(f"activity needs 0 < off <= on < 1, not off {self.off:g} and on {self.on:g}")
        if self.shortest_s < 0 or self.gap_s < 0:
            raise ValueError("durations must not be negative")


def probabilities(classes: Floats, steps: int) -> Floats:
    """Probability of each speaker in each step, shape (steps, 3), from log-probabilities (frames, 7)."""
    nearest = np.rint((np.arange(steps) * STEP + _MIDDLE - _FRAME_MIDDLE) / _FRAME).astype(np.intp)
    return (np.exp(classes) @ _MEMBERS)[np.clip(nearest, 0, len(classes) - 1)]


def activity(probability: Floats, settings: ActivitySettings) -> list[Mask]:
    """The steps in which each speaker is heard, without short pauses and short bits; silent ones left out."""
    found = []
    for row in probability.T:
        heard = _hysteresis(row, settings.on, settings.off)
        for start, end in runs(~heard):
            if start > 0 and end < len(heard) and (end - start) * STEP < settings.gap_s * SAMPLE_RATE:
                heard[start:end] = True
        for start, end in runs(heard):
            if (end - start) * STEP < settings.shortest_s * SAMPLE_RATE:
                heard[start:end] = False
        if heard.any():
            found.append(heard)
    return found


def _hysteresis(probability: Floats, on: float, off: float) -> Mask:
    """On from `on`, off below `off`, in between as before."""
    decided = (probability >= on) | (probability < off)
    newest = np.maximum.accumulate(np.where(decided, np.arange(len(probability)), -1))
    held: Mask = (newest >= 0) & (probability[np.maximum(newest, 0)] >= on)
    return held


def runs(row: Mask) -> Iterator[tuple[int, int]]:
    """Half-open runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], row, [False]]).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def spans(row: Mask, samples: int) -> tuple[Span, ...]:
    """Runs as spans of samples in a window of `samples`; the outermost steps reach to its edges."""
    return tuple((_edge(start, len(row), samples), _edge(end, len(row), samples)) for start, end in runs(row))


def _edge(step: int, steps: int, samples: int) -> int:
    """The sample between a step and the one before it."""
    if step == 0:
        return 0
    return samples if step == steps else min(samples, step * STEP + _MIDDLE - STEP // 2)


def mask(given: tuple[Span, ...], steps: int) -> Mask:
    """The steps whose middle lies in the given spans of a window."""
    row = np.zeros(steps, np.bool_)
    for start, end in given:
        first, last = (-(-(edge - _MIDDLE) // STEP) for edge in (start, end))
        row[max(0, first) : max(0, last)] = True
    return row
