"""Refreshes that hear less of what is committed: cheaper, and the transcript is what it would be."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contract import FRAME, RecognitionTask
from streaming.core.settings import SessionSettings

from .oracle import SECOND, Oracle, Run, truth

SETTINGS = SessionSettings()
seeds = st.integers(0, 2**32)


def listen(seed: int, words: int, pauses: float, *, brief: bool) -> Run:
    said = truth(seed, words, pauses=pauses)
    run = Run(said, Oracle(said, random.Random(seed)), brief=brief)
    run.play()
    return run


def known_s(task: RecognitionTask) -> float:
    """Seconds of a window that were committed before."""
    return (task.prefix[-1].end - task.start) / SECOND if task.prefix else 0.0


@given(seeds, st.integers(1, 80), st.sampled_from([0.0, 0.1, 0.5]))
@settings(max_examples=60)
def test_no_word_is_lost_doubled_or_changed(seed: int, words: int, pauses: float) -> None:
    """The reader checks that committed words stay."""
    run = listen(seed, words, pauses, brief=True)
    assert [w.text for w in run.reader.words] == [w.text for w in run.truth.words]
    assert not run.reader.gaps


def test_refreshes_hear_less_but_for_those_that_may_serve_as_final() -> None:
    whole, brief = (listen(5, 300, 0.05, brief=brief) for brief in (False, True))
    known = {run.brief: split(run, quiet=False) for run in (whole, brief)}
    assert max(known[True]) <= SETTINGS.keep_s / 2 + 2 * SETTINGS.slack_s
    assert max(known[False]) > SETTINGS.keep_s
    assert sum(known[True]) < 0.75 * sum(known[False])
    assert max(split(brief, quiet=True)) > SETTINGS.keep_s


def split(run: Run, *, quiet: bool) -> list[float]:
    """What was known of the windows that end in silence, or of those that do not."""
    voices = run.truth.voices()
    tail = round(SETTINGS.soft_pause_s / 2 * SECOND)
    return [
        known_s(task)
        for task in run.oracle.tasks
        if quiet != any(voice.cheap for voice in voices[(task.end - tail) // FRAME : task.end // FRAME])
    ]
