"""Words with estimated times from plain text: for models that write text and nothing about time. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engine.align import audible_frames, timed_words
from engine.contract import FRAME, SAMPLE_RATE, RecognitionTask, Word
from engine.spread import spread_frames
from engine.units import is_unspaced, letters, split_units

_NEAR = round(2.5 * SAMPLE_RATE)
"""How far the times of one word may lie apart in two decodes."""
_LEAST = SAMPLE_RATE // 20
"""Samples of a word at least, where nothing says how long it is."""
_COMPARED = 6
"""Words before a place that are compared with the last committed ones."""


def estimated_words(
    text: str, task: RecognitionTask, start: int | None = None, end: int | None = None
) -> list[Word]:
    """Words of `text`, laid over the audible part of the task's audio behind its prefix.

    `start` and `end` narrow that part (absolute samples), for text whose own time marks are known.
    """
    begin = max(task.prefix[-1].end, task.start) if task.prefix else task.start
    low = min(max(begin, start if start is not None else begin), task.end)
    high = min(max(end if end is not None else task.end, low), task.end)
    # One piece a character: then a position in the pieces is a position in the text.
    pieces = [char.encode("utf-8", "ignore") for char in text]
    units = split_units(pieces)
    if not units:
        return []
    audio = task.audio[: high - task.start]
    frames = spread_frames(audio, low - task.start, units, len(pieces), reaches=end is not None)
    return timed_words(units, frames, (), audio, (low, high))


def laid_words(text: str, task: RecognitionTask, low: int, high: int) -> list[Word]:
    """All words of `text` between two marks: where nothing is to be heard, or hardly any time is, evenly."""
    found = estimated_words(text, task, low, high)
    units = split_units([char.encode("utf-8", "ignore") for char in text])
    if len(found) == len(units):
        return found
    heard = np.flatnonzero(audible_frames(task.audio))
    last = task.start + (int(heard[-1]) + 1) * FRAME if len(heard) else task.end
    high = min(max(high, low + _LEAST * len(units)), last, task.end)
    low = max(min(low, high - _LEAST * len(units)), task.start)
    edges = [low + (high - low) * place // len(units) for place in range(len(units) + 1)]
    return [
        Word(unit.text, start, end, unit.space, estimated=True)
        for unit, start, end in zip(units, edges, edges[1:], strict=False)
    ]


def apart(words: Sequence[Word]) -> list[Word]:
    """The same, where the text before them is another one: a space between, in scripts that have any."""
    return [
        replace(word, space=word.space or (not i and not is_unspaced(word.text[0])))
        for i, word in enumerate(words)
    ]


def readable(text: str) -> str:
    """`text` without replacement characters: what a cut character looks like in a finished output."""
    return text.replace("\N{REPLACEMENT CHARACTER}", "")


def continued(words: Sequence[Word], prefix: Sequence[Word]) -> tuple[Word, ...]:
    """Those of `words`, a reply to the whole window, that come after `prefix`.

    Two decodes rarely give a word the same time. So among the places near the end of the prefix that one
    counts before which most of the last committed words stand again, and the nearest of such; further away,
    where nearly all of them do, for times may be wrong; where nothing stands again, time alone.
    """
    if not prefix:
        return tuple(words)
    known = prefix[-1].end
    best, score = sum((word.start + word.end) // 2 < known for word in words), (0, 0)
    for place in range(1, len(words) + 1):
        apart = abs(words[place - 1].end - known)
        again = _again(words[:place], prefix)
        if again >= min(2 if apart <= _NEAR else _COMPARED - 1, len(prefix)):
            best, score = max((best, score), (place, (again, -apart)), key=lambda one: one[1])
    edge, out = known, []
    for word in words[best:]:
        start = max(word.start, edge)
        edge = max(word.end, start)
        out.append(replace(word, start=start, end=edge))
    return tuple(out)


def _again(words: Sequence[Word], prefix: Sequence[Word]) -> int:
    """How many of the last words of both are the same, at the same places counted from the end."""
    pairs = zip(words[: -_COMPARED - 1 : -1], prefix[: -_COMPARED - 1 : -1], strict=False)
    return sum(letters(one.text) == letters(other.text) for one, other in pairs)
