"""Speech that brings no text is noticed while it goes on: repaired, or a gap with its cause, or no speech."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.contract import Finish, Hypothesis, Priority, RecognitionTask, Word
from streaming.core.hunger import Hunger, Repair
from streaming.core.judging import MISSING, STUCK
from streaming.core.settings import SessionSettings

from .oracle import SECOND, Oracle, Run, Truth, truth

STARVE = SessionSettings().starve_s
LATEST = round(STARVE * SECOND / 0.8) + 3 * SECOND
"""Words are voiced to nine tenths; then come a refresh, a reply, and the search for a seam."""

SHORTEST = SECOND * 11 // 20
"""Words that are long enough to be missed: see `judging.DOUBTFUL`."""

seeds = st.integers(0, 2**32)
EMPTY = Hypothesis(())
NOBODY = Hypothesis((), no_speech=0.9)
LOOPING = Hypothesis((), Finish.LOOP)


def rut(answer: Hypothesis) -> Callable[[RecognitionTask], Hypothesis | None]:
    """What an engine says whose first rung brings nothing, or whose refreshes loop on every rung."""

    def says(task: RecognitionTask) -> Hypothesis | None:
        looping = answer is LOOPING and task.priority is not Priority.FINAL
        return answer if task.attempt == 0 or looping else None

    return says


def listen(said: Truth, seed: int, **options: object) -> Run:
    run = Run(said, Oracle(said, random.Random(seed), noise=0.0, **options))  # type: ignore[arg-type]
    run.play()
    return run


def voiced(said: Truth) -> int:
    return sum(320 for voice in said.voices() if voice.cheap)


@given(seeds, st.integers(1, 60), st.sampled_from([0.0, 0.1, 0.5]))
@settings(max_examples=40)
def test_who_is_heard_is_never_repaired(seed: int, words: int, pauses: float) -> None:
    assert not listen(truth(seed, words, pauses=pauses), seed).session.repairs()


@given(seeds, st.integers(1, 60), st.sampled_from([0.0, 0.05]), st.sampled_from([EMPTY, LOOPING]))
@example(51, 28, 0.0, EMPTY)  # a seam cuts a word, whose rest was once said as another
@settings(max_examples=40)
def test_a_rut_costs_no_word_and_little_time(
    seed: int, words: int, pauses: float, answer: Hypothesis
) -> None:
    said = truth(seed, words, pauses=pauses, shortest=SHORTEST)
    run = listen(said, seed, deaf=rut(answer))
    assert [w.text for w in run.reader.words] == [w.text for w in said.words]
    assert not run.reader.gaps
    assert max(map(int.__sub__, run.reader.committed_at, (w.end for w in said.words))) <= LATEST
    assert set(run.session.repairs()) <= {Repair.TEXT}


@given(seeds, st.integers(1, 60), st.sampled_from([0.0, 0.05, 0.3]), st.sampled_from([EMPTY, LOOPING]))
@settings(max_examples=40)
def test_a_model_that_says_nothing_behind_what_is_committed_is_asked_without_it(
    seed: int, words: int, pauses: float, answer: Hypothesis
) -> None:
    """The words that are forced on it are what it is stuck behind, whatever the rung."""
    said = truth(seed, words, pauses=pauses, shortest=SHORTEST)
    run = listen(said, seed, deaf=lambda task: answer if task.prefix else None)
    assert [w.text for w in run.reader.words] == [w.text for w in said.words]
    assert not run.reader.gaps


@given(seeds, st.integers(1, 60), st.sampled_from([EMPTY, LOOPING]))
@settings(max_examples=40)
def test_who_begins_behind_words_that_silence_a_model_need_not_speak_long(
    seed: int, words: int, answer: Hypothesis
) -> None:
    """It says nothing as long as a sentence stands in front of the next one."""
    said = truth(seed, words, pauses=0.2, shortest=SHORTEST)
    over = {word.end for word, voice in _ends(said) if not voice}

    def says(task: RecognitionTask) -> Hypothesis | None:
        return answer if task.prefix and task.prefix[-1].end in over else None

    run = listen(said, seed, deaf=says)
    assert [w.text for w in run.reader.words] == [w.text for w in said.words]
    assert not run.reader.gaps
    late = max(map(int.__sub__, run.reader.committed_at, (w.end for w in said.words)))
    assert late <= STUCK / 0.8 + 3 * SECOND
    assert Repair.GAP not in run.session.repairs()


def _ends(said: Truth) -> Iterator[tuple[Word, bool]]:
    """Each word, and whether another follows at once."""
    for word, following in pairwise(said.words):
        yield word, following.start - word.end < SECOND // 2


@pytest.mark.parametrize("answer", [EMPTY, NOBODY, LOOPING])
def test_a_long_rut_is_repaired_and_counted(answer: Hypothesis) -> None:
    """Also where the first rung says that nobody speaks: for so long that is not believed."""
    said = truth(7, 60, pauses=0.0, shortest=SHORTEST)
    run = listen(said, 7, deaf=rut(answer))
    assert Counter(run.session.repairs())[Repair.TEXT] >= voiced(said) // LATEST
    assert {w.text for w in said.words[:45]} <= {w.text for w in run.reader.words}


@given(seeds, st.integers(30, 90), st.sampled_from([EMPTY, LOOPING]))
@settings(max_examples=30)
def test_what_stays_without_text_is_a_gap_soon(seed: int, words: int, answer: Hypothesis) -> None:
    """An engine deaf to one session: short gaps with a cause, not one when the window is full."""
    said = truth(seed, words, pauses=0.0)
    run = listen(said, seed, deaf=lambda _: answer)
    gaps = run.reader.gaps
    assert {gap.cause for gap in gaps} == {"loop" if answer is LOOPING else "no_text"}
    assert max(gap.end - gap.start for gap in gaps) <= LATEST
    # What is left behind the last seam is a gap from `MISSING` on.
    assert sum(gap.end - gap.start for gap in gaps) > voiced(said) - MISSING
    repairs = run.session.repairs()
    assert set(repairs) <= {Repair.GAP}
    assert len(repairs) >= (voiced(said) - LATEST) // LATEST


@given(seeds, st.integers(1, 120), st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=30)
def test_noise_that_is_taken_for_speech_is_silence_and_cheap(seed: int, words: int, pauses: float) -> None:
    """The model says that nobody speaks, and is asked once more for each so many seconds of it."""
    said = truth(seed, words, pauses=pauses)
    run = listen(said, seed, deaf=lambda _: NOBODY)
    assert not run.reader.words
    assert not run.reader.gaps
    again = [task for task in run.oracle.tasks if task.attempt]
    assert len(again) <= voiced(said) / ((STARVE - SessionSettings().search_s) * SECOND)
    assert set(run.session.repairs()) <= {Repair.NO_SPEECH}


def test_a_window_without_text_is_not_dragged_along() -> None:
    """What follows a gap is decoded without the audio that brought nothing."""
    said = truth(3, 80, pauses=0.0)
    run = listen(said, 3, deaf=lambda _: EMPTY)
    starts = [task.start for task in run.oracle.tasks]
    ends = {gap.end for gap in run.reader.gaps}
    assert ends & set(starts)
    assert max(len(t.audio) for t in run.oracle.tasks) <= LATEST


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans(), st.booleans()), max_size=50))
def test_repairs_are_at_least_so_much_speech_apart(finals: list[tuple[int, bool, bool]]) -> None:
    hunger, since = Hunger(100), 0
    for missed, words, gap in finals:
        if hunger.starving(missed):
            hunger.repair()
        since = missed if words else since + missed
        hunger.finished(missed, words=words, gap=gap)
        if repairs := hunger.repairs():
            assert len(repairs) == 1
            assert repairs[0] is Repair.GAP if gap else repairs[0] is not Repair.GAP
            since = 0
        assert since < 100, "so much speech without a word and nothing was done"
