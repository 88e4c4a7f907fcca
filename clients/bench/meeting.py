"""A meeting put together from single utterances, so that who says what when is exact.

Six people take turns at random, with pauses; now and then one falls in before another is done, or one starts
while the other goes on. One person is away for ten minutes in the middle. The same seed, the same meeting.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, product
from pathlib import Path

import numpy as np

from clients.audio import RATE, Warn, load
from engine.sglang.payload import as_wav

from .corpus import CorpusError, Pcm, Row, read_manifest
from .speakers_refs import Spoken

PAUSE_S = (0.3, 1.2)
FALL_IN_S = (0.4, 1.2)
FALL_IN = 0.15
"""Share of turns that begin before the one before has ended."""
AGAIN = 0.25
"""Share of turns that the same person goes on after."""
AWAY_S = 600.0
BEFORE_S = 150.0
"""Speech before the absent one leaves; as much follows the return."""
STEP = RATE // 100
LOUD_DB = -40.0
"""Speech of an utterance begins and ends where 10 ms of it are less than this below its loudest."""


@dataclass(frozen=True, slots=True, eq=False)
class Meeting:
    """The audio and what is true of it."""

    pcm: Pcm
    turns: tuple[Spoken, ...]
    """With their words; the leading and trailing silence of the utterances is not part of a turn."""


def assemble(folder: Path, seed: int, warn: Warn) -> Meeting:
    """The meeting from the utterances of `folder` whose manifest rows name one of many speakers; raises
    `CorpusError` where there are fewer than six."""
    rows = sorted(
        (r for r in read_manifest(folder) if "librispeech" in r.name), key=lambda r: (r.speakers, r.name)
    )
    people = {name: list(mine) for name, mine in groupby(rows, key=lambda r: r.speakers)}
    if len(people) < 6:
        raise CorpusError(f"{folder} has utterances of {len(people)} people, a meeting takes 6")
    rng = random.Random(seed)
    order = _turns(sorted(people)[:6], rng)
    return _mixed(order, people, rng, warn)


def _turns(people: Sequence[str], rng: random.Random) -> list[tuple[str, float]]:
    """Person after person, with the pause before each: less than 0 falls in. The utterances' lengths are not
    known here, and 7 s taken for each: the absence is checked when they are."""
    absent, others = people[-1], list(people[:-1])
    order: list[tuple[str, float]] = []
    last = ""
    for share, present in ((BEFORE_S, people), (AWAY_S * 1.25, others), (BEFORE_S, people)):
        at = 0.0
        while at < share:
            chosen = rng.choice([p for p in present if p != last] if rng.random() > AGAIN else list(present))
            pause = rng.uniform(*PAUSE_S)
            if chosen != last and order and rng.random() < FALL_IN:
                pause = -rng.uniform(*FALL_IN_S)
            order.append((chosen, pause))
            at, last = at + 7.0, chosen
        order.append((absent if present is not others else others[0], rng.uniform(*PAUSE_S)))
        last = order[-1][0]
    return order


def _mixed(
    order: Sequence[tuple[str, float]], people: dict[str, list[Row]], rng: random.Random, warn: Warn
) -> Meeting:
    spoken: list[Spoken] = []
    placed: list[tuple[int, Pcm]] = []
    at, said = 0, dict.fromkeys(people, 0)
    for person, pause in order:
        row = people[person][said[person] % len(people[person])]
        said[person] += 1
        pcm = load(row.path, warn)
        first, last = edges(pcm)
        # The pause is between the speech of both, wherever their files begin and end.
        start = max(0, at + round(pause * RATE) - first)
        placed.append((start, pcm))
        spoken.append(Spoken((start + first) / RATE, (start + last) / RATE, person, row.text))
        at = max(at, start + last)
    total = np.zeros(max(start + len(pcm) for start, pcm in placed), dtype=np.int32)
    for start, pcm in placed:
        total[start : start + len(pcm)] += pcm
    return Meeting(np.clip(total, -32768, 32767).astype(np.int16), tuple(spoken))


def edges(pcm: Pcm) -> tuple[int, int]:
    """Where speech begins and ends in one utterance, samples."""
    steps = len(pcm) // STEP
    power = (pcm[: steps * STEP].astype(np.float64).reshape(steps, STEP) ** 2).mean(axis=1)
    loud = np.flatnonzero(power > power.max(initial=0.0) * 10 ** (LOUD_DB / 10))
    return (int(loud[0]) * STEP, int(loud[-1] + 1) * STEP) if len(loud) else (0, len(pcm))


def absence(turns: Sequence[Spoken]) -> tuple[str, float]:
    """Who is silent longest between two turns, and for how many seconds."""
    found = ("", 0.0)
    for person in sorted({turn.speaker for turn in turns}):
        mine = sorted((t.start_s, t.end_s) for t in turns if t.speaker == person)
        gaps = [after[0] - before[1] for before, after in pairwise(mine)]
        found = max(found, (person, max(gaps, default=0.0)), key=lambda item: item[1])
    return found


@dataclass(frozen=True, slots=True)
class Return:
    """Somebody was silent for long, and came back."""

    speaker: str
    away_s: float
    before: str | None
    """The label that most of their speech before has, None where nothing of it was heard."""
    after: str | None

    @property
    def known(self) -> bool:
        """Whether the label is the same, and a label."""
        return self.before == self.after and self.before not in (None, "unknown")


def returned(reference: Sequence[Spoken], hypothesis: Sequence[Spoken], least_s: float) -> Return | None:
    """What became of whoever is silent longest; None where that is less than `least_s`."""
    who, away_s = absence(reference)
    if away_s < least_s:
        return None
    mine = sorted((t for t in reference if t.speaker == who), key=lambda t: t.start_s)
    back = next(n for n, (one, two) in enumerate(pairwise(mine), 1) if two.start_s - one.end_s == away_s)
    return Return(who, away_s, _label(mine[:back], hypothesis), _label(mine[back:], hypothesis))


def _label(said: Sequence[Spoken], hypothesis: Sequence[Spoken]) -> str | None:
    """Who is heard most where somebody speaks."""
    shared: dict[str, float] = {}
    for turn, heard in product(said, hypothesis):
        both = min(turn.end_s, heard.end_s) - max(turn.start_s, heard.start_s)
        if both > 0:
            shared[heard.speaker] = shared.get(heard.speaker, 0.0) + both
    return max(shared, key=lambda label: (shared[label], label), default=None)


def write(meeting: Meeting, folder: Path, name: str = "meeting") -> None:
    """NAME.wav, NAME.rttm and NAME.stm in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.wav").write_bytes(as_wav(meeting.pcm.tobytes()))
    rttm, stm = [], []
    for turn in sorted(meeting.turns, key=lambda turn: turn.start_s):
        length = turn.end_s - turn.start_s
        rttm.append(f"SPEAKER {name} 1 {turn.start_s:.3f} {length:.3f} <NA> <NA> {turn.speaker} <NA> <NA>")
        stm.append(f"{name} 1 {turn.speaker} {turn.start_s:.3f} {turn.end_s:.3f} <o,f0,unknown> {turn.text}")
    (folder / f"{name}.rttm").write_text("\n".join(rttm) + "\n", encoding="utf-8")
    (folder / f"{name}.stm").write_text("\n".join(stm) + "\n", encoding="utf-8")
