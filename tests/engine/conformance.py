"""What every engine must do, as functions of a recognizer and real speech: import and call them.

Each takes an opened `Recognizer` and audio whose words are known; none looks at which engine it is.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from engine.contract import (
    Audio,
    EngineError,
    Finish,
    Hypothesis,
    Priority,
    RecognitionTask,
    Recognizer,
    join,
)

from .real import errors, spoken

OFFSET = 7_200_000
"""Windows begin this far into the session: times must be absolute."""


def task(audio: Audio, priority: Priority = Priority.FINAL, **more: object) -> RecognitionTask:
    return RecognitionTask("conformance", "session", audio, OFFSET, priority, **more)  # type: ignore[arg-type] # test shorthand


def check_words(hypothesis: Hypothesis, asked: RecognitionTask) -> None:
    """Times ordered and inside the window, after the prefix; text without outer space or half characters."""
    edge = max(asked.prefix[-1].end, asked.start) if asked.prefix else asked.start
    for word in hypothesis.words:
        assert edge <= word.start <= word.end <= asked.end
        edge = word.end
        assert word.text
        assert word.text == word.text.strip()
        assert "\N{REPLACEMENT CHARACTER}" not in word.text
        assert word.confidence is None or 0.0 <= word.confidence <= 1.0


async def hears(engine: Recognizer, audio: Audio, reference: str, *, most_errors: float) -> Hypothesis:
    """The text is right within `most_errors` for finals and refreshes alike; the final is returned."""
    results = []
    for priority in (Priority.REFRESH, Priority.FINAL):
        asked = task(audio, priority, language="en")
        heard = await engine.recognize(asked)
        check_words(heard, asked)
        assert heard.finish is Finish.STOP
        assert errors(spoken(reference), spoken(join(heard.words))) <= most_errors, join(heard.words)
        results.append(heard)
    return results[-1]


async def continues_a_prefix(engine: Recognizer, audio: Audio, whole: Hypothesis, *, every: int = 3) -> None:
    """From some words on, the reply goes on with the text and repeats nothing of the prefix."""
    for count in range(1, len(whole.words) - 1, every):
        asked = task(audio, Priority.REFRESH, language="en", prefix=whole.words[:count])
        rest = await engine.recognize(asked)
        check_words(rest, asked)
        expected = [spoken(word.text) for word in whole.words[count:]]
        assert rest.words, join(whole.words[:count])
        assert spoken(rest.words[0].text) in (expected[0], []), (count, join(rest.words))


async def obeys_a_prefix_that_is_not_what_it_would_say(
    engine: Recognizer, audio: Audio, whole: Hypothesis
) -> None:
    """Committed words stand even where the model would have said others; it goes on after them."""
    prefix = (*whole.words[:3],)
    changed = tuple(
        type(word)("Marmalade" if i == 1 else word.text, word.start, word.end)
        for i, word in enumerate(prefix)
    )
    asked = task(audio, Priority.REFRESH, language="en", prefix=changed)
    rest = await engine.recognize(asked)
    check_words(rest, asked)
    assert "marmalade" not in spoken(join(rest.words))[:1]


async def is_silent_on(engine: Recognizer, audio: Audio) -> None:
    """No words on audio without speech."""
    for priority in (Priority.FIRST, Priority.FINAL):
        assert join((await engine.recognize(task(audio, priority))).words) == ""


async def refuses_what_it_cannot_do(engine: Recognizer, audio: Audio) -> None:
    """Too much audio and unknown languages are errors that say so and are not to be retried."""
    limit = int(engine.capabilities.max_window_s * 16_000)
    long = audio.repeat(1 + (limit + 1) // len(audio))[: limit + 16]
    for asked in (task(long), task(audio, language="tlh")):
        with pytest.raises(EngineError) as caught:
            await engine.recognize(asked)
        assert not caught.value.retryable
        assert str(caught.value)


async def goes_on_after_a_cancelled_task(engine: Recognizer, audio: Audio) -> None:
    """A caller that leaves takes nobody along: what runs beside it and what comes after it is answered."""
    asked = [
        replace(task(audio, Priority.REFRESH, language="en"), id=f"c{n}", session=f"c{n}") for n in range(2)
    ]
    left, stays = (asyncio.create_task(engine.recognize(one)) for one in asked)
    await asyncio.sleep(0)
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    text = join((await stays).words)
    assert text
    assert join((await engine.recognize(asked[0])).words) == text
