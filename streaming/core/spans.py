"""Spans of the session clock and the only place that turns samples into time."""

from __future__ import annotations

from engine.contract import SAMPLE_RATE


def to_samples(seconds: float) -> int:
    """Whole samples nearest to `seconds`."""
    return round(seconds * SAMPLE_RATE)


def to_seconds(samples: int) -> float:
    return samples / SAMPLE_RATE


def to_ms(samples: int) -> int:
    """Whole milliseconds, rounded down so that an end never lies past the audio."""
    return samples * 1000 // SAMPLE_RATE
