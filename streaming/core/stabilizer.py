"""Which words of a growing window are safe to commit.

Two decodes in a row must agree on a word, at the same place after the committed text, before it is
committed (LocalAgreement-2, Machacek et al. 2023, arXiv:2307.14743). Words near the end of the audio are held
back, since the model has not heard what follows; words near their deadline are committed at once.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from engine.contract import Word

from .spans import to_samples


def key(word: Word) -> str:
    """What two decodes must agree on: letters and digits, without case, width and punctuation."""
    return _key(word.text)


@lru_cache(maxsize=10_000)
def _key(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold()
    return "".join(c for c in text if unicodedata.category(c)[0] in "LNM") or text


APART = to_samples(2.0)
"""Words that begin further apart are two words, however alike."""


def agreed(one: Sequence[Word], other: Sequence[Word]) -> int:
    """Length of the common prefix of two hypotheses, in text and about in time."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if key(a) != key(b) or abs(a.start - b.start) > APART:
            break
        count += 1
    return count


@dataclass(frozen=True, slots=True)
class Horizons:
    """Sample indices that a word must end by to be committed."""

    sure: int
    """With two votes, when the model is confident of it."""
    doubtful: int
    """With two votes, when it is not: more of what follows often changes such a word."""
    due: int
    """Without a second vote: it has waited as long as it may."""
    confidence: float
    """Probability from which a word counts as sure; words without one are."""

    def of(self, word: Word) -> int:
        """The horizon that holds for an agreed word."""
        doubtful = word.confidence is not None and word.confidence < self.confidence
        return self.doubtful if doubtful else self.sure


class Stabilizer:
    """Remembers the last uncommitted tail; `observe` says how much of the new one is safe."""

    def __init__(self) -> None:
        self._tail: tuple[Word, ...] = ()

    @property
    def tail(self) -> tuple[Word, ...]:
        """Newest words not committed."""
        return self._tail

    def observe(self, words: Sequence[Word], horizons: Horizons) -> tuple[Word, ...]:
        """The words to commit of a new hypothesis (all of them come after the committed text).

        The last word waits, unless it is due: its ending and punctuation may still change.
        """
        votes = agreed(self._tail, words)
        count = 0
        for i, word in enumerate(words):
            due = word.end <= horizons.due
            stable = i < votes and word.end <= horizons.of(word) and i < len(words) - 1
            if not (due or stable):
                break
            count = i + 1
        self._tail = tuple(words[count:])
        return tuple(words[:count])

    def close(self) -> None:
        """The window ended and its words were committed, or given up: nothing is pending."""
        self._tail = ()
