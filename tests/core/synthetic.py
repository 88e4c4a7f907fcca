"""Meetings made of vectors: turns of known people, and the windows an encoder would hear of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from engine.contract import SAMPLE_RATE, LocalSpeaker, Span, SpeakerWindow, Vector

Turns = Sequence[tuple[float, float, int]]
"""(start, end, person) in seconds."""

DIMENSION = 64


def voice(person: int, noise: np.random.Generator | None = None, spread: float = 0.5) -> Vector:
    """A unit vector of `person`; with `noise` one that has a similarity of about 1 / (1 + spread ** 2) to
    another of the same person."""
    made = np.random.default_rng(person).normal(size=DIMENSION)
    made /= np.linalg.norm(made)
    if noise is not None:
        made += spread * noise.normal(size=DIMENSION) / np.sqrt(DIMENSION)
    unit: Vector = (made / np.linalg.norm(made)).astype(np.float32)
    return unit


def samples(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE)


def windows(
    turns: Turns, *, window_s: float = 10.0, hop_s: float = 1.5, seed: int = 0, spread: float = 0.5
) -> list[SpeakerWindow]:
    """What is heard of `turns` in windows that end every `hop_s`, silent ones left out."""
    noise = np.random.default_rng(seed)
    ends = np.arange(hop_s, max(end for _, end, _ in turns) + hop_s, hop_s)
    return [
        w
        for end in ends
        if (w := hear(turns, max(0.0, end - window_s), float(end), noise, spread=spread)).speakers
    ]


def hear(
    turns: Turns,
    start: float,
    end: float,
    noise: np.random.Generator,
    *,
    alone_s: float = 0.5,
    spread: float = 0.5,
) -> SpeakerWindow:
    """One window."""
    near = [turn for turn in turns if turn[1] > start and turn[0] < end]
    speakers = []
    for person in sorted({person for _, _, person in near}):
        mine = [(max(s, start), min(e, end)) for s, e, p in near if p == person]
        others = [(s, e) for s, e, p in near if p != person]
        alone = sum(_alone(span, others) for span in mine)
        active: tuple[Span, ...] = tuple((samples(s), samples(e)) for s, e in mine)
        vector = voice(person, noise, spread) if alone >= alone_s else None
        speakers.append(LocalSpeaker(active, vector, samples(alone)))
    return SpeakerWindow(samples(start), samples(end), tuple(speakers))


def _alone(span: tuple[float, float], others: Sequence[tuple[float, float]]) -> float:
    cuts = sorted({*span, *(min(max(t, span[0]), span[1]) for other in others for t in other)})
    return sum(b - a for a, b in itertools.pairwise(cuts) if not any(s < b and e > a for s, e in others))


def conversation(people: Sequence[int], length_s: float, seed: int, *, turn_s: float = 4.0) -> Turns:
    """Turns of `people` at random, with pauses and a little overlap."""
    rng = np.random.default_rng(seed)
    turns: list[tuple[float, float, int]] = []
    at, last = 0.2, -1
    while at < length_s:
        person = int(rng.choice([p for p in people if p != last] or list(people)))
        long = float(rng.uniform(0.6, 2 * turn_s))
        turns.append((round(at, 2), round(at + long, 2), person))
        at, last = at + long + float(rng.uniform(-0.3, 1.0)), person
    return turns
