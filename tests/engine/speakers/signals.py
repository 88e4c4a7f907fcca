"""Sounds that are the same on every machine."""

from __future__ import annotations

import numpy as np

from engine.contract import SAMPLE_RATE, Audio


def chant(seconds: float, pitch: float = 120.0) -> Audio:
    """Harmonics of a gliding pitch in syllables of a quarter of a second: nobody's voice."""
    time = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    phase = 2 * np.pi * (pitch * time + 4.0 * np.sin(2 * np.pi * 0.7 * time))
    harmonics = sum(np.sin(k * phase) / k for k in range(1, 25))
    return (0.1 * np.abs(np.sin(4 * np.pi * time)) * harmonics).astype(np.float32)
