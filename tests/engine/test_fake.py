"""The scripted engine says what the audio says."""

from __future__ import annotations

import asyncio

import numpy as np

from engine.contract import FRAME, Priority, RecognitionTask
from engine.fake import SLOT, FakeDetector, FakeRecognizer, FakeScript, word, words_of
from tests.engine import conformance as conform
from tests.support.sound import speech


def heard(audio: np.ndarray[tuple[int], np.dtype[np.float32]], start: int, prefix: int = 0) -> list[str]:
    task = RecognitionTask(
        "t", "s", audio, start, Priority.FINAL, prefix=tuple(word(slot) for slot in range(prefix))
    )
    return [w.text for w in asyncio.run(FakeRecognizer().recognize(task)).words]


def test_words_are_where_the_sound_is() -> None:
    audio = speech("xx..x")
    assert [w.text for w in words_of(audio)] == ["zero", "one", "four"]
    assert all(w.start // SLOT == w.end // SLOT for w in words_of(audio))


def test_any_window_gives_the_same_words() -> None:
    audio = speech("x" * 14)
    assert heard(audio[3 * SLOT :], 3 * SLOT)[-2:] == ["one-two", "one-three"]
    assert heard(audio[: 2 * SLOT - 1600], 0) == ["zero"]
    assert heard(audio[: 4 * SLOT], 0, prefix=3) == ["three"]


def test_loud_is_voice() -> None:
    voices = FakeDetector().open().feed(speech("x."))
    assert len(voices) == 2 * SLOT // FRAME
    assert [v.cheap for v in voices] == [True] * 25 + [False] * 25


async def test_it_does_what_every_engine_must_do() -> None:
    engine = FakeRecognizer(FakeScript(languages=("en",)))
    audio = speech("xxxx.xxxxx.xxx")
    said = " ".join(word.text for word in words_of(audio, conform.OFFSET))
    whole = await conform.hears(engine, audio, said, most_errors=0.0)
    await conform.continues_a_prefix(engine, audio, whole)
    await conform.obeys_a_prefix_that_is_not_what_it_would_say(engine, audio, whole)
    await conform.is_silent_on(engine, speech("....."))
    await conform.is_silent_on(engine, speech(""))
    await conform.refuses_what_it_cannot_do(engine, audio)
    await conform.goes_on_after_a_cancelled_task(engine, audio)
