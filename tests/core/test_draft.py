"""What the last decode heard goes along with the next one, behind the words that are committed."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contract import FRAME, Priority

from .oracle import SECOND, Oracle, Run, truth


@given(st.integers(0, 2**32), st.integers(20, 80))
@settings(max_examples=20)
def test_a_draft_goes_on_where_the_committed_words_end(seed: int, words: int) -> None:
    said = truth(seed, words, pauses=0.05)
    run = Run(said, Oracle(said, random.Random(seed)))
    run.play()
    for task in run.oracle.tasks:
        known = (*task.prefix, *task.draft)
        assert all(one.end <= other.start for one, other in pairwise(known))
        assert all(word.end <= task.end for word in task.draft)


@given(st.integers(0, 2**32), st.integers(1, 60), st.sampled_from([0.05, 0.5]))
@settings(max_examples=20)
def test_how_much_is_voiced_behind_the_committed_words_goes_along(
    seed: int, words: int, pauses: float
) -> None:
    said = truth(seed, words, pauses=pauses)
    run = Run(said, Oracle(said, random.Random(seed)))
    run.play()
    flags = [voice.cheap for voice in said.voices()]
    for task in run.oracle.tasks:
        known = task.prefix[-1].end if task.prefix else task.start
        voiced = sum(flags[known // FRAME : task.end // FRAME]) * FRAME
        # What ends before a segment begins is none of its own, and may be at most two frames of an onset.
        assert task.voiced <= voiced <= task.voiced + (0 if task.prefix else len(task.audio)) + 3 * FRAME


def test_refreshes_of_running_speech_have_one_and_first_decodes_have_none() -> None:
    said = truth(3, 100, pauses=0.0)
    run = Run(said, Oracle(said, random.Random(3)))
    run.play()
    refreshes = [task for task in run.oracle.tasks if task.priority is Priority.REFRESH]
    assert sum(bool(task.draft) for task in refreshes) > 0.8 * len(refreshes)
    assert not any(task.draft for task in run.oracle.tasks if task.priority is Priority.FIRST)


def test_under_load_a_segments_first_words_are_searched_for_later() -> None:
    said = truth(8, 60, pauses=0.3)
    first = {}
    for stretch in (1.0, 2.5):
        run = Run(said, Oracle(said, random.Random(8)), stretch=stretch)
        run.play()
        assert [w.text for w in run.reader.words] == [w.text for w in said.words]
        first[stretch] = min(task.end for task in run.oracle.tasks) - said.words[0].start
    assert 0.1 * SECOND < first[2.5] - first[1.0] < 0.9 * SECOND
