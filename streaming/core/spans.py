"""Samples and seconds of the session clock."""

from __future__ import annotations

from engine.contract import SAMPLE_RATE


def to_samples(seconds: float) -> int:
    """Whole samples nearest to `seconds`."""
    return round(seconds * SAMPLE_RATE)


def to_seconds(samples: int) -> float:
    return samples / SAMPLE_RATE
