"""Texts against texts: error rates after normalisation, and which word of one is which of the other. PURE."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import jiwer

UNSPACED = frozenset({"zh", "ja", "th", "yue", "lo", "my", "km"})
"""Languages scored by character: their script has no spaces between words."""

_NOTHING = "\N{MIDDLE DOT}"
"""Stands for a word of punctuation alone, so that both sides keep their places."""

Normalise = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Errors:
    """Edit counts; sums, so that streams add up and rates are never averaged."""

    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0
    length: int = 0
    """Units of the reference."""

    def __add__(self, other: Errors) -> Errors:
        return Errors(
            self.substitutions + other.substitutions,
            self.deletions + other.deletions,
            self.insertions + other.insertions,
            self.length + other.length,
        )

    @property
    def count(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float:
        """Errors per reference unit; of an empty reference every inserted unit counts as one."""
        return self.count / max(self.length, 1)


def score(reference: str, hypothesis: str, language: str) -> Errors:
    """Word errors, or character errors where the language is written without spaces."""
    normalise = normaliser(language)
    said, heard = normalise(reference), normalise(hypothesis)
    if language in UNSPACED:
        said, heard = (" ".join(text.replace(" ", "")) for text in (said, heard))
    if not said.split():
        return Errors(insertions=len(heard.split()))
    out = jiwer.process_words(said, heard)
    return Errors(out.substitutions, out.deletions, out.insertions, len(said.split()))


@cache
def normaliser(language: str) -> Normalise:
    """Whisper's English normaliser for English, its basic one elsewhere; Chinese is compared simplified."""
    if language == "en":
        from whisper_normalizer.english import EnglishTextNormalizer

        english = EnglishTextNormalizer()
        return lambda text: str(english(text))
    from whisper_normalizer.basic import BasicTextNormalizer

    basic = BasicTextNormalizer()
    if language not in {"zh", "yue"}:
        return lambda text: str(basic(text)).strip()
    import opencc

    simplified = opencc.OpenCC("t2s")
    return lambda text: str(basic(simplified.convert(text))).strip()


def matches(mine: Sequence[str], theirs: Sequence[str]) -> dict[int, int]:
    """Index in `mine` -> index in `theirs`, for words that are the same and stand in the same place."""
    if not mine or not theirs:
        return {}
    out = jiwer.process_words(" ".join(map(bare, theirs)), " ".join(map(bare, mine)))
    return {
        chunk.hyp_start_idx + offset: chunk.ref_start_idx + offset
        for chunk in out.alignments[0]
        if chunk.type == "equal"
        for offset in range(chunk.ref_end_idx - chunk.ref_start_idx)
        if bare(mine[chunk.hyp_start_idx + offset]) != _NOTHING
    }


def bare(word: str) -> str:
    """One token for one word: case, accents of compatibility and punctuation do not tell words apart."""
    token = re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", word).casefold())
    return token or _NOTHING
