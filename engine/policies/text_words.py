"""Words with estimated times from plain text: for models that write text and nothing about time. PURE."""

from __future__ import annotations

from engine.align import timed_words
from engine.contract import RecognitionTask, Word
from engine.spread import spread_frames
from engine.units import split_units


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


def readable(text: str) -> str:
    """`text` without replacement characters: what a cut character looks like in a finished output."""
    return text.replace("\N{REPLACEMENT CHARACTER}", "")
