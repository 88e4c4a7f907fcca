"""Text in another language than what follows is not what a model is to write on from."""

from __future__ import annotations

import random
from dataclasses import replace

from engine.contract import Hypothesis, RecognitionTask

from .oracle import SECOND, Oracle, Run, Truth, truth


class Linguist(Oracle):
    """Hears for its language each window where it is asked to: before `turns` another one than after."""

    turns = 0
    sure = 0.9

    def hear(self, task: RecognitionTask) -> Hypothesis | None:
        heard = super().hear(task)
        if heard is None or not task.detect:
            return heard
        language = "ko" if task.end <= self.turns else "en"
        return replace(heard, language=language, language_probability=self.sure)


def played(said: Truth, turns: int) -> list[RecognitionTask]:
    oracle = Linguist(said, random.Random(1))
    oracle.turns = turns
    Run(said, oracle).play()
    return oracle.tasks


def greeted(pause: int) -> Truth:
    """A word, a pause, and then a talk with pauses of its own."""
    talk = truth(7, 60, pauses=0.2)
    first, rest = talk.words[0], talk.words[1:]
    return Truth(
        (first, *(replace(w, start=w.start + pause, end=w.end + pause) for w in rest)), talk.samples + pause
    )


def test_a_greeting_in_a_language_that_nobody_speaks_is_no_context() -> None:
    said = greeted(3 * SECOND)
    tasks = played(said, said.words[0].end + 2 * SECOND)
    assert tasks[-1].language == "en"
    assert not any("w0" in task.context.split() for task in tasks)
    assert any(task.context for task in tasks), "what was said since is context"


def test_what_was_said_before_the_language_changed_is_no_context_any_more() -> None:
    said = truth(7, 120, pauses=0.2)
    turns = said.samples // 2
    tasks = played(said, turns)
    assert {task.language for task in tasks} == {None, "ko", "en"}
    english = [task for task in tasks if task.language == "en"]
    before = {w.text for w in said.words if w.end < turns - 24 * SECOND}
    assert any(task.context for task in english)
    assert not any(before & set(task.context.split()) for task in english)
    assert any(task.context for task in tasks if task.language == "ko")
