"""The retry ladder that all models climb: each attempt at a window asks a little differently. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rung:
    """One step; a little temperature frees a greedy loop."""

    context: bool
    """Whether text goes along with the audio: the words before, or the hotwords of a model that takes no
    others."""
    temperature: float = 0.0
    repetition_penalty: float = 1.0
    budget: float = 1.0
    """What the output budget is multiplied by."""
    split: bool = False
    """Whether the window is cut at its quietest place and its halves are decoded one after the other."""


def rung_of(ladder: Sequence[Rung], attempt: int) -> Rung:
    """The step of attempt number `attempt`, from 0; the last is taken again and again."""
    return ladder[min(attempt, len(ladder) - 1)]
