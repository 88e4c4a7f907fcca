"""Voices that the segmentation took for one are taken apart, those that it took for two put together. PURE.

The segmentation hears changes and overlap well, but takes two alike voices for one now and then; their
vectors tell them apart. Windows of a second slide over what each voice says alone. If they fall into two
groups that are unlike, the voice is two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .powerset import Mask

Floats = npt.NDArray[np.float32]
Vectors = Callable[[Sequence[Mask]], Floats]
"""Unit vectors (masks, dimension) of masks over the steps of one window."""

_WIDTH = 50
"""Steps of a sliding window (1 s): with less its vector says little."""
_HOP = 10
_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class SplitSettings:
    """When one voice is two, and two are one; measured in `README.md`."""

    unlike: float = 0.4
    """A voice is split if the vectors of its two parts are less alike than this."""
    alike: float = 0.6
    """Voices whose vectors are at least this alike are one."""
    least: int = 50
    """Steps that each part must have alone (1 s)."""

    def __post_init__(self) -> None:
        if not -1.0 <= self.unlike < self.alike:
            raise ValueError(f"speakers: unlike {self.unlike:g} must be less than alike {self.alike:g}")


@dataclass(frozen=True, slots=True, eq=False)
class Heard:
    """The steps in which one voice is heard, and those in which nobody else is."""

    active: Mask
    alone: Mask


def apart(active: Sequence[Mask]) -> list[Heard]:
    """Masks of different voices with what each says alone."""
    together = np.sum(active, axis=0) if len(active) else 0
    return [Heard(row, row & (together == 1)) for row in active]


def separate(voices: Sequence[Heard], vectors: Vectors, settings: SplitSettings) -> list[Heard]:
    """The voices as their vectors tell them apart."""
    waiting, done = list(voices), []
    while waiting:
        voice = waiting.pop()
        parts = _parts(voice, vectors, settings)
        if parts is None:
            done.append(voice)
        else:
            waiting.extend(parts)
    return _merged(done, vectors, settings)


def _parts(voice: Heard, vectors: Vectors, settings: SplitSettings) -> tuple[Heard, Heard] | None:
    """The two voices that `voice` is, None if it is one. Steps with others go to the part nearest in time."""
    steps = np.flatnonzero(voice.alone)
    if len(steps) < 2 * max(settings.least, _WIDTH):
        return None
    starts = np.arange(0, len(steps) - _WIDTH + 1, _HOP)
    windows = np.zeros((len(starts), len(voice.alone)), np.bool_)
    for row, start in zip(windows, starts, strict=True):
        row[steps[start : start + _WIDTH]] = True
    lean = np.interp(np.arange(len(steps)), starts + _WIDTH // 2, _lean(vectors(list(windows))))
    first = np.zeros_like(voice.alone)
    first[steps[lean > 0]] = True
    second = voice.alone & ~first
    if min(first.sum(), second.sum()) < settings.least:
        return None
    one, other = vectors([first, second])
    if float(one @ other) >= settings.unlike:
        return None
    active = np.flatnonzero(voice.active)
    after = np.clip(np.searchsorted(steps, active), 1, len(steps) - 1)
    nearest = np.where(active - steps[after - 1] <= steps[after] - active, steps[after - 1], steps[after])
    mine = np.zeros_like(voice.active)
    mine[active[first[nearest]]] = True
    return Heard(mine, first), Heard(voice.active & ~mine, second)


def _lean(found: Floats) -> Floats:
    """How much more each vector is like the first of two groups than like the second.

    2-means on the sphere, from the least alike pair on.
    """
    alike = found @ found.T
    i, j = np.unravel_index(int(np.argmin(alike)), alike.shape)
    lean: Floats = found @ (found[i] - found[j])
    for _ in range(_ROUNDS):
        first = lean > 0
        if first.all() or not first.any():
            break
        lean = found @ (_centre(found[first]) - _centre(found[~first]))
        if ((lean > 0) == first).all():
            break
    return lean


def _centre(vectors: Floats) -> Floats:
    total = vectors.sum(axis=0)
    centre: Floats = total / max(float(np.linalg.norm(total)), 1e-9)
    return centre


def _merged(voices: Sequence[Heard], vectors: Vectors, settings: SplitSettings) -> list[Heard]:
    """Join the most alike pair for as long as there is one that is alike enough."""
    merged = list(voices)
    while True:
        sure = [i for i, voice in enumerate(merged) if voice.alone.sum() >= settings.least // 2]
        if len(sure) < 2:
            return merged
        found = vectors([merged[i].alone for i in sure])
        alike = np.triu(found @ found.T, 1)
        i, j = np.unravel_index(int(np.argmax(alike)), alike.shape)
        if alike[i, j] < settings.alike:
            return merged
        second, first = merged.pop(sure[j]), merged[sure[i]]
        merged[sure[i]] = Heard(first.active | second.active, first.alone | second.alone)
