"""A hypothesis made fit for the transcript: times in order, and no words that nobody had the time to say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.contract import SAMPLE_RATE, Word

BURST = 5
"""So many words in a row..."""
FASTEST = SAMPLE_RATE * 3 // 10
"""...take at least this long: 17 words, or characters of a script without spaces, a second is beyond speech.
A model that repeats its last sentence over silence piles the words up on the last instant of the audio."""


def spoken(words: Sequence[Word], start: int, end: int) -> tuple[Word, ...]:
    """`words` with times that never run backwards, nor before `start`, nor past `end`, up to the first
    burst that is faster than speech."""
    ordered = []
    at = min(start, end)
    for word in words:
        first = min(max(word.start, at), end)
        last = min(max(word.end, first), end)
        at = last
        ordered.append(
            replace(word, start=first, end=last) if (first, last) != (word.start, word.end) else word
        )
    return tuple(ordered[: _burst(ordered)])


def _burst(words: Sequence[Word]) -> int:
    """Index of the first of `BURST` words that together take less than `FASTEST`; len(words) if none does."""
    for i in range(len(words) - BURST + 1):
        if words[i + BURST - 1].end - words[i].start < FASTEST:
            return i
    return len(words)
