"""From the segmentation's class probabilities to who is heard where, in samples of the window. PURE.

The network names, for each frame of 270 samples, which of at most three local speakers speak, at most two at
once: one class a set. A speaker's probability is the sum over the sets it is in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.contract import Span

STEP = 270
"""Samples from one frame to the next."""
CENTRE = 495
"""Sample in the middle of the first frame's field (991 samples)."""
MEMBERS = np.array(
    [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1]], dtype=np.float32
)
"""Which speakers are in each of the 7 classes."""

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ActivitySettings:
    """When a local speaker counts as heard."""

    on: float = 0.5
    off: float = 0.4
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


def probabilities(classes: Floats) -> Floats:
    """Probability of each speaker in each frame, shape (frames, 3), from log-probabilities (frames, 7)."""
    return np.exp(classes) @ MEMBERS


def activity(probability: Floats, settings: ActivitySettings) -> Mask:
    """Where each speaker is heard, shape (frames, speakers), without short pauses and short bits."""
    heard = np.zeros(probability.shape, np.bool_)
    frame_s = STEP / 16_000
    for speaker in range(probability.shape[1]):
        row = _hysteresis(probability[:, speaker], settings.on, settings.off)
        for start, end in runs(~row):
            if start > 0 and end < len(row) and (end - start) * frame_s < settings.gap_s:
                row[start:end] = True
        for start, end in runs(row):
            if (end - start) * frame_s < settings.shortest_s:
                row[start:end] = False
        heard[:, speaker] = row
    return heard


def _hysteresis(probability: Floats, on: float, off: float) -> Mask:
    """On from `on`, off below `off`, in between as before."""
    certain = np.where(probability >= on, 1, np.where(probability < off, 0, -1))
    known = np.where(certain >= 0, np.arange(len(certain)), -1)
    newest = np.maximum.accumulate(known) if len(known) else known
    held: Mask = (newest >= 0) & (certain[np.maximum(newest, 0)] == 1)
    return held


def runs(row: Mask) -> Iterator[tuple[int, int]]:
    """Half-open runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], row, [False]]).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def spans(row: Mask, samples: int) -> tuple[Span, ...]:
    """Runs as spans of samples in a window of `samples`; the outermost frames reach to its edges."""
    last = len(row)
    return tuple((_edge(start, last, samples), _edge(end, last, samples)) for start, end in runs(row))


def _edge(frame: int, frames: int, samples: int) -> int:
    """The sample between a frame and the one before it."""
    if frame == 0:
        return 0
    return samples if frame == frames else min(samples, CENTRE - STEP // 2 + frame * STEP)


def alone(active: tuple[Span, ...], others: tuple[tuple[Span, ...], ...]) -> tuple[Span, ...]:
    """The parts of `active` that no span of `others` touches."""
    left = list(active)
    for start, end in (span for other in others for span in other):
        left = [
            piece for a, b in left for piece in ((a, min(b, start)), (max(a, end), b)) if piece[0] < piece[1]
        ]
    return tuple(sorted(set(left)))
