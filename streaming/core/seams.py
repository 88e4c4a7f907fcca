"""Where to cut audio that has no pause: at its quietest place."""

from __future__ import annotations

import numpy as np

from engine.contract import Audio

from .ring import AudioRing

HOP = 160  # 10 ms
WIDTH = 10  # hops: a seam is the middle of 100 ms


def quietest(energies: Audio, width: int = WIDTH) -> int:
    """Index at the middle of the quietest `width` neighbours; of equals the latest.

    `energies` has shape (n,), n >= 1; a window wider than that shrinks to it.
    """
    width = min(width, len(energies))
    sums = np.convolve(energies, np.ones(width, np.float32), mode="valid")
    return len(sums) - 1 - int(np.argmin(sums[::-1])) + width // 2


def seam(ring: AudioRing, start: int, end: int) -> int:
    """The sample index in [start, end) to cut at: the middle of its quietest 100 ms."""
    if end - start < HOP:
        return end
    return start + quietest(ring.energies(start, end, HOP)) * HOP
