"""A prefix that ends inside a token: its last character is asked for, and taken where the model says it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from engine.borders import Bordered, loosened
from engine.contract import Capabilities, Hypothesis, Priority, RecognitionTask, Word, join

AUDIO = np.zeros(10 * 16_000, np.float32)


def words(text: str, start: int = 0) -> tuple[Word, ...]:
    return tuple(Word(c, start + 3000 * i, start + 3000 * (i + 1), space=False) for i, c in enumerate(text))


def task(prefix: Sequence[Word]) -> RecognitionTask:
    return RecognitionTask("t", "s", AUDIO, 0, Priority.REFRESH, prefix=tuple(prefix), language="zh")


class Model:
    """Writes `pairs` as one token each: after half of one it says something else."""

    def __init__(self, text: str, pairs: tuple[str, ...], wrong: str) -> None:
        self.text, self.pairs, self.wrong = text, pairs, wrong
        self.asked: list[str] = []
        self.capabilities = Capabilities("scripted", "m", 30.0)

    async def recognize(self, task: RecognitionTask) -> Hypothesis:
        prefix = join(task.prefix)
        self.asked.append(prefix)
        rest = self.text[len(prefix) :]
        if any(prefix.endswith(pair[0]) and rest.startswith(pair[1]) for pair in self.pairs):
            rest = self.wrong + rest[1:]
        return Hypothesis(words(rest, len(prefix) * 3000 - 1000))

    async def close(self) -> None:
        pass


TEXT = "欢迎大家来体验"


@pytest.mark.parametrize("count", range(1, len(TEXT)))
async def test_wherever_it_is_cut_the_text_goes_on(count: int) -> None:
    engine = Bordered(Model(TEXT, ("大家",), "将"))
    prefix = words(TEXT)[:count]
    found = await engine.recognize(task(prefix))
    assert join((*prefix, *found.words)) == TEXT
    if engine.counters["border_agreed"]:
        assert all(word.start >= prefix[-1].end for word in found.words)


async def test_what_is_committed_stands_where_the_model_would_say_something_else() -> None:
    model = Model(TEXT, (), "")
    engine = Bordered(model)
    prefix = words("欢迎达")
    found = await engine.recognize(task(prefix))
    assert model.asked == ["欢迎", "欢迎达"]
    assert join(found.words) == TEXT[3:]
    assert engine.counters == {"border_forced": 1}


def test_scripts_with_spaces_end_at_words() -> None:
    assert loosened(task((Word("Hello", 0, 4000),))) is None
    assert loosened(task(())) is None
