"""A window in two: the last step of a retry ladder, where the whole fails however it is asked for. PURE."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.contract import SAMPLE_RATE, Audio, Finish, Hypothesis, RecognitionTask

LEAST = 4 * SAMPLE_RATE
"""Shorter windows stay whole: half of one would hold too little to be understood."""
_STEP = SAMPLE_RATE // 10


def seam(audio: Audio) -> int:
    """The middle of the quietest 100 ms in the middle third of `audio`."""
    third = len(audio) // 3
    middle = audio[third : third + max(third // _STEP, 1) * _STEP].reshape(-1, _STEP)
    return third + int(np.argmin(np.square(middle).mean(axis=1))) * _STEP + _STEP // 2


def halves(task: RecognitionTask) -> tuple[RecognitionTask, RecognitionTask]:
    """Both sides of the seam as tasks of the step before; each knows the committed words of its side."""
    place = seam(task.audio)
    at = task.start + place
    attempt = task.attempt - 1
    before = tuple(word for word in task.prefix if word.start + word.end <= 2 * at)
    first = replace(task, audio=task.audio[:place], prefix=before, attempt=attempt)
    behind = task.prefix[len(before) :]
    return first, replace(task, audio=task.audio[place:], start=at, prefix=behind, attempt=attempt)


def joined(first: Hypothesis, second: Hypothesis) -> Hypothesis:
    """Their words, in two sets of speakers, for a number means nobody in another request. Where only the
    second failed, what the first says stands, and the rest counts as cut off."""
    if first.finish is not Finish.STOP:
        return first
    if second.finish is Finish.LOOP:
        return replace(first, finish=Finish.LENGTH)
    words = tuple(replace(word, tag=None if word.tag is None else f"{word.tag}b") for word in second.words)
    return replace(first, words=first.words + words, finish=second.finish)
