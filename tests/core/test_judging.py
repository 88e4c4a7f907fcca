"""What the final reply for a window is worth: taken, asked again, or its rest decoded by itself."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from engine.contract import Finish, Hypothesis, Priority, RecognitionTask
from streaming.core.judging import DOUBTFUL, LADDER, MISSING, Step, judge

from .oracle import SECOND, Oracle, Run, truth

LOOP = Hypothesis((), Finish.LOOP)
LAST = LADDER - 1


def test_a_loop_is_asked_again_and_then_its_first_round_stands_where_it_fills_the_speech() -> None:
    assert [judge(LOOP, 0, attempt, words=True).step for attempt in range(LAST)] == [Step.AGAIN] * LAST
    filled = judge(LOOP, DOUBTFUL - 1, LAST, words=True)
    assert (filled.step, filled.cause, filled.keep) == (Step.TAKE, None, True)
    short = judge(LOOP, DOUBTFUL, LAST, words=True)
    assert (short.step, short.cause, short.keep) == (Step.TAKE, "loop", False)


@pytest.mark.parametrize("torn", [False, True])
def test_silence_behind_forced_words_is_doubted_from_half_a_second_on_unless_the_last_is_torn(
    torn: bool,
) -> None:
    empty, least = Hypothesis(()), MISSING if torn else DOUBTFUL
    assert judge(empty, DOUBTFUL, 0, words=False, forced=True, torn=torn).step is Step.AGAIN
    assert judge(empty, least, 1, words=False, forced=True, torn=torn).step is Step.REST
    assert judge(empty, least - 1, 1, words=False, forced=True, torn=torn).step is Step.TAKE


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_words_that_a_model_repeats_on_every_rung_are_heard_once_or_told_as_a_gap(share: float) -> None:
    """Of somebody who says three words; the first round is all of them, or the first one alone."""
    said = truth(4, 3, pauses=0.0, shortest=SECOND // 2)

    def loops(task: RecognitionTask) -> Hypothesis:
        heard = replace(oracle, deaf=lambda _: None).hear(task)
        assert heard is not None
        words = heard.words[: max(1, round(share * len(said.words)))]
        return Hypothesis(words if task.priority is Priority.FINAL else (), Finish.LOOP)

    oracle = Oracle(said, random.Random(4), noise=0.0, deaf=loops)
    run = Run(said, oracle)
    run.play()
    whole = share == 1.0
    assert [w.text for w in run.reader.words] == ([w.text for w in said.words] if whole else [])
    assert [gap.cause for gap in run.reader.gaps] == ([] if whole else ["loop"])
