"""The scripted engine says what the audio says."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from engine.contract import FRAME, SAMPLE_RATE, EngineError, Priority, RecognitionTask, SpeakerTask
from engine.fake import (
    SLOT,
    FakeDetector,
    FakeEncoder,
    FakeRecognizer,
    FakeScript,
    SpeakerScript,
    say,
    vector_of,
    word,
    words_of,
)
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


async def test_the_encoder_hears_scripted_voices_and_their_overlap() -> None:
    second = SAMPLE_RATE
    audio = np.concatenate(
        [say(second, 0), say(second, 0, 3), say(2 * second, 3), say(second), say(second, 0)]
    )
    window = await FakeEncoder().voices(SpeakerTask("a", "s", audio, 5 * second))
    first, other = window.speakers
    assert first.active == ((5 * second, 7 * second), (10 * second, 11 * second))
    assert other.active == ((6 * second, 9 * second),)
    assert (first.alone, other.alone) == (2 * second, 2 * second)
    assert first.vector is not None
    assert other.vector is not None
    assert first.vector @ vector_of(0) == other.vector @ vector_of(3) == 1.0
    assert first.vector @ other.vector == 0.0


async def test_the_encoder_gives_no_vector_for_too_little_alone() -> None:
    audio = np.concatenate([say(10 * FRAME, 1), say(SAMPLE_RATE, 1, 2)])
    first, other = (await FakeEncoder().voices(SpeakerTask("a", "s", audio, 0))).speakers
    assert (first.vector, first.alone) == (None, 10 * FRAME)
    assert (other.vector, other.alone) == (None, 0)
    assert await FakeEncoder().embed(say(SAMPLE_RATE)) is None


async def test_the_encoder_keeps_the_order_of_tags() -> None:
    audio = np.concatenate([say(SAMPLE_RATE, 2), say(SAMPLE_RATE, 1)])
    tags = (((SAMPLE_RATE, 2 * SAMPLE_RATE),), ((0, SAMPLE_RATE),))
    window = await FakeEncoder().voices(SpeakerTask("a", "s", audio, 0, tags))
    assert [voice.active for voice in window.speakers] == list(tags)
    vectors = [voice.vector for voice in window.speakers if voice.vector is not None]
    assert [int(np.argmax(vector)) for vector in vectors] == [1, 2]


async def test_the_encoder_fails_when_the_script_says_so() -> None:
    encoder = FakeEncoder(SpeakerScript(failures={0: EngineError("scripted", "no", retryable=True)}))
    with pytest.raises(EngineError, match="no"):
        await encoder.embed(say(SAMPLE_RATE, 1))
    found = await encoder.embed(say(SAMPLE_RATE, 1))
    assert found is not None
    assert found @ vector_of(1) == 1.0
    await encoder.close()
    assert encoder.closed
