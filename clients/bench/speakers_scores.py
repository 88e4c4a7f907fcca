"""Who spoke when, scored: diarization error rate, Jaccard error rate, and words by speaker. PURE.

DER after NIST md-eval: of the speaker time of the reference, what was missed, was false alarm, or was given
to another; overlapped speech counts once for each speaker; speakers are mapped one to one so that most time
agrees. JER after DIHARD: the mean over reference speakers of 1 - intersection / union with their
counterparts.
"""

from __future__ import annotations

import itertools
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment  # type: ignore[attr-defined]

from .scoring import UNSPACED, Errors, normaliser, score
from .speakers_refs import Spoken

# It warns for every text that it has no times: ours are in order already.
logging.getLogger("preprocess").setLevel(logging.ERROR)

Names = frozenset[str]
Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Der:
    """Seconds; sums, so that recordings add up."""

    missed: float = 0.0
    false_alarm: float = 0.0
    confusion: float = 0.0
    total: float = 0.0

    def __add__(self, other: Der) -> Der:
        return Der(
            self.missed + other.missed,
            self.false_alarm + other.false_alarm,
            self.confusion + other.confusion,
            self.total + other.total,
        )

    @property
    def rate(self) -> float:
        return (self.missed + self.false_alarm + self.confusion) / max(self.total, 1e-9)


def der(reference: Sequence[Spoken], hypothesis: Sequence[Spoken], *, collar_s: float = 0.0) -> Der:
    """Diarization errors; within `collar_s` of an edge of the reference nothing is scored."""
    atoms = list(_atoms(reference, hypothesis, collar_s))
    mapping = mapped(atoms)
    found = Der()
    for length, said, heard in atoms:
        right = sum(mapping.get(speaker) in heard for speaker in said)
        found += Der(
            missed=length * max(len(said) - len(heard), 0),
            false_alarm=length * max(len(heard) - len(said), 0),
            confusion=length * (min(len(said), len(heard)) - right),
            total=length * len(said),
        )
    return found


def jer(reference: Sequence[Spoken], hypothesis: Sequence[Spoken]) -> float:
    """Mean Jaccard error of the reference's speakers, 0 to 1; 0 without any."""
    atoms = list(_atoms(reference, hypothesis, 0.0))
    said, heard = _names(atoms)
    both, either = np.zeros((len(said), len(heard))), np.zeros((len(said), len(heard)))
    for length, mine, theirs in atoms:
        rows = np.array([name in mine for name in said], dtype=np.bool_)[:, None]
        columns = np.array([name in theirs for name in heard], dtype=np.bool_)[None]
        both += length * (rows & columns)
        either += length * (rows | columns)
    error = 1 - both / np.maximum(either, 1e-9)
    pairs = linear_sum_assignment(error)
    matched = sum(float(error[i, j]) for i, j in zip(*pairs, strict=True))
    return (matched + len(said) - len(pairs[0])) / len(said) if said else 0.0


def counterparts(reference: Sequence[Spoken], hypothesis: Sequence[Spoken]) -> dict[str, str]:
    """Speaker of the reference -> speaker of the hypothesis, so that most time agrees."""
    return mapped(list(_atoms(reference, hypothesis, 0.0)))


Atom = tuple[float, Names, Names]
"""Length in seconds, and who is heard by the reference and by the hypothesis."""


def mapped(atoms: Sequence[Atom]) -> dict[str, str]:
    """The best one-to-one mapping of speakers."""
    said, heard = _names(atoms)
    shared = np.zeros((len(said), len(heard)))
    for length, mine, theirs in atoms:
        for one, other in itertools.product(mine, theirs):
            shared[said.index(one), heard.index(other)] += length
    pairs = zip(*linear_sum_assignment(-shared), strict=True)
    return {said[i]: heard[j] for i, j in pairs if shared[i, j] > 0}


def _names(atoms: Sequence[Atom]) -> tuple[list[str], list[str]]:
    said = sorted({name for _, mine, _ in atoms for name in mine})
    heard = sorted({name for _, _, theirs in atoms for name in theirs})
    return said, heard


def _atoms(reference: Sequence[Spoken], hypothesis: Sequence[Spoken], collar_s: float) -> Iterator[Atom]:
    """Stretches in which nothing changes on either side."""
    edges = sorted({edge for turn in reference for edge in (turn.start_s, turn.end_s)})
    cuts = {*edges, *(edge for turn in hypothesis for edge in (turn.start_s, turn.end_s))}
    if collar_s:
        cuts |= {edge + side for edge in edges for side in (-collar_s, collar_s)}
    for start, end in itertools.pairwise(sorted(cuts)):
        middle = (start + end) / 2
        near = bisect_left(edges, middle)
        around = edges[max(near - 1, 0) : near + 1]
        if collar_s and any(abs(edge - middle) < collar_s for edge in around):
            continue
        yield end - start, _at(reference, middle), _at(hypothesis, middle)


def _at(turns: Sequence[Spoken], moment: float) -> Names:
    return frozenset(turn.speaker for turn in turns if turn.start_s <= moment < turn.end_s)


def word_errors(
    reference: Sequence[Spoken], hypothesis: Sequence[Spoken], language: str
) -> tuple[Errors, Errors]:
    """cpWER and WER of the same words: by speaker under the best permutation, and all in order of time.

    By character where the script has no spaces. One normalisation, that of `scoring`, is applied to every
    utterance of both sides alike.
    """
    said, heard = _spoken(reference, language), _spoken(hypothesis, language)
    in_time = score(_in_time(reference), _in_time(hypothesis), language)
    if not any(text.split() for text in said.values()):
        return in_time, in_time
    # The other kinds of bench run where this is not installed, on a GPU machine, say.
    from meeteval.wer.wer.cp import cp_word_error_rate

    found: Any = cp_word_error_rate(said, heard)  # type: ignore[arg-type]  # it takes texts by speaker too
    return Errors(found.substitutions, found.deletions, found.insertions, found.length), in_time


def _in_time(spoken: Sequence[Spoken]) -> str:
    return " ".join(part.text for part in sorted(spoken, key=lambda part: part.start_s))


def _spoken(spoken: Sequence[Spoken], language: str) -> dict[str, str]:
    """Each speaker's words, normalised; characters apart where they are the units."""
    normalise: Callable[[str], str] = normaliser(language)
    texts: dict[str, str] = {}
    for speaker in sorted({part.speaker for part in spoken}):
        text = normalise(_in_time([part for part in spoken if part.speaker == speaker]))
        texts[speaker] = " ".join(text.replace(" ", "")) if language in UNSPACED else text
    return texts
