"""Real weights on real speech."""

from __future__ import annotations

import asyncio
import unicodedata

import numpy as np
import pytest

from engine.contract import EngineError, Finish, Hypothesis, Priority, join
from engine.detector import open_detector
from engine.local.decoder import LocalDecoder
from engine.local.recognizer import LocalRecognizer
from engine.local.settings import DecodeSettings, WindowRule
from engine.weights import find_weights
from tests.engine import conformance as conform
from tests.engine.real import (
    errors,
    needs_data,
    needs_weights,
    recognizer,
    recording,
    references,
    spoken,
)

pytestmark = [pytest.mark.real, needs_data]

MODELS = [
    pytest.param("base", marks=needs_weights("base")),
    pytest.param("tiny.en", marks=needs_weights("tiny.en")),
]
JFK = "formats/jfk.mp3"
JFK_TEXT = (
    "And so my fellow Americans, ask not what your country can do for you,"
    " ask what you can do for your country."
)
UTTERANCES = "utterances_en/librispeech-test-other/1688-142285-{:04d}.flac"


@pytest.fixture(params=MODELS)
def engine(request: pytest.FixtureRequest) -> LocalRecognizer:
    return recognizer(request.param)


async def test_it_hears_what_was_said_and_goes_on_after_a_prefix(engine: LocalRecognizer) -> None:
    audio = recording(JFK)
    whole = await conform.hears(engine, audio, JFK_TEXT, most_errors=0.0)
    await conform.continues_a_prefix(engine, audio, whole)
    await conform.obeys_a_prefix_that_is_not_what_it_would_say(engine, audio, whole)
    await conform.goes_on_after_a_cancelled_task(engine, audio)


async def test_utterances(engine: LocalRecognizer) -> None:
    wrong = total = 0.0
    for number in range(10):
        path = UTTERANCES.format(number)
        reference = spoken(references()[path])
        asked = conform.task(recording(path), language="en")
        heard = await engine.recognize(asked)
        conform.check_words(heard, asked)
        wrong += errors(reference, spoken(join(heard.words))) * len(reference)
        total += len(reference)
    assert wrong / total < 0.15


async def test_word_times_fall_on_the_words(engine: LocalRecognizer) -> None:
    """Pauses of the recording lie between words, not inside them."""
    audio = recording(JFK)
    heard = await engine.recognize(conform.task(audio, language="en"))
    times = {word.text.strip(",.").lower(): word for word in heard.words}
    assert all(not word.estimated for word in heard.words)
    americans, ask = times["americans"], times["not"]
    assert 0.5 < (ask.start - americans.end) / 16_000 < 2.5
    assert all(word.end - word.start <= 16_000 for word in heard.words)


async def test_no_words_on_silence_and_refusals(engine: LocalRecognizer) -> None:
    await conform.is_silent_on(engine, np.zeros(4 * 16_000, np.float32))
    await conform.is_silent_on(engine, np.zeros(0, np.float32))
    for name in ("silence2sec.wav", "aeneas-vad-zero.wav", "aeneas-vad-n.wav", "nst-u0016001-silence.wav"):
        await conform.is_silent_on(engine, recording(f"noise/{name}"))
    await conform.refuses_what_it_cannot_do(engine, recording(JFK))


def test_noise_that_the_detector_lets_through_gives_no_words(engine: LocalRecognizer) -> None:
    for name in ("esc10-dog-1-100032-A-0.wav", "aeneas-vad-n.wav", "nst-u0016001-silence.wav"):
        audio = recording(f"noise/{name}")
        frames = open_detector().open().feed(audio[: len(audio) // 320 * 320])
        if any(voice.neural > 0.5 for voice in frames):
            assert join(engine.decode(conform.task(audio[: 30 * 16_000])).words) == "", name


def test_audio_that_is_not_finite_is_refused(engine: LocalRecognizer) -> None:
    with pytest.raises(EngineError, match="not finite"):
        engine.decode(conform.task(np.full(3200, np.nan, np.float32)))


def test_context_reaches_the_model(engine: LocalRecognizer) -> None:
    """A rare spelling in the text before is taken up."""
    audio = recording(UTTERANCES.format(1))
    plain = engine.decode(conform.task(audio, language="en"))
    primed = engine.decode(conform.task(audio, language="en", hotwords=("Mr. Thorneton", "Mr. Hayle")))
    assert join(primed.words) != join(plain.words)
    assert "Hayle" in join(primed.words) or "Thorneton" in join(primed.words)


def test_every_rung_of_the_ladder_still_hears(engine: LocalRecognizer) -> None:
    for attempt in range(4):
        heard = engine.decode(conform.task(recording(JFK), language="en", attempt=attempt))
        assert errors(spoken(JFK_TEXT), spoken(join(heard.words))) < 0.2


@needs_weights("tiny.en")
def test_a_window_without_silence_loops_and_is_told() -> None:
    settings = DecodeSettings(quick_window=WindowRule(0.0, 0.0, 0.02))
    decoder = LocalDecoder(find_weights("tiny.en"), name="x", threads=1, settings=settings)
    seen = {
        decoder.decode(conform.task(recording(JFK)[: n * 8000], Priority.FIRST)).finish for n in (4, 6, 8)
    }
    decoder.close()
    assert seen & {Finish.LOOP, Finish.LENGTH}


@needs_weights("tiny.en")
def test_without_alignment_times_are_estimated() -> None:
    settings = DecodeSettings(align=False)
    decoder = LocalDecoder(find_weights("tiny.en"), name="x", threads=1, settings=settings)
    asked = conform.task(recording(JFK), Priority.REFRESH)
    heard = decoder.decode(asked)
    decoder.close()
    conform.check_words(heard, asked)
    assert all(word.estimated for word in heard.words)
    assert spoken(join(heard.words)) == spoken(JFK_TEXT)


def script(hypothesis: Hypothesis) -> set[str]:
    letters = [c for c in join(hypothesis.words) if unicodedata.category(c)[0] == "L"]
    return {unicodedata.name(c).split()[0] for c in letters}


@needs_weights("base")
@pytest.mark.parametrize(
    ("path", "language", "scripts", "most_errors"),
    [
        ("zh-funasr-asr_example.wav", "zh", {"CJK"}, 0.1),
        ("ja-common_voice_24511055.mp3", "ja", {"CJK", "HIRAGANA", "KATAKANA"}, 0.6),
        ("es-leopard.wav", "es", {"LATIN"}, 0.15),
        ("fr-leopard.wav", "fr", {"LATIN"}, 0.1),
    ],
)
def test_languages_are_found_and_written_in_their_script(
    path: str, language: str, scripts: set[str], most_errors: float
) -> None:
    engine, audio = recognizer("base"), recording(f"languages/{path}")
    asked = conform.task(audio)
    heard = engine.decode(asked)
    conform.check_words(heard, asked)
    assert heard.language == language
    assert heard.language_probability > 0.8
    assert script(heard) <= scripts | {"KATAKANA-HIRAGANA"}
    reference = references()[f"languages/{path}"]
    split = list if language in ("zh", "ja") else spoken
    assert (
        errors(
            split("".join(spoken(reference))) if split is list else spoken(reference),
            split("".join(spoken(join(heard.words)))) if split is list else spoken(join(heard.words)),
        )
        <= most_errors
    )
    if language in ("zh", "ja"):
        assert all(sum(unicodedata.category(c)[0] == "L" for c in word.text) <= 1 for word in heard.words)
        half = conform.task(audio, language=language, prefix=heard.words[:5])
        rest = engine.decode(half)
        conform.check_words(rest, half)
        assert join((*heard.words[:5], *rest.words))[:8] == join(heard.words)[:8]


@needs_weights("base")
def test_a_pinned_language_is_written_and_the_heard_one_told_on_request() -> None:
    asked = conform.task(recording("languages/fr-leopard.wav"), language="en", detect=True)
    heard = recognizer("base").decode(asked)
    assert heard.language == "fr"
    assert recognizer("base").decode(conform.task(recording(JFK), language="en")).language is None


@needs_weights("base")
def test_half_a_second_is_heard_as_a_likely_language_and_what_is_clear_as_what_it_is() -> None:
    base = recognizer("base")
    clip = recording("utterances_en/librispeech-test-other/2033-164914-0002.flac")
    begins = int(np.argmax(np.abs(clip) > 0.05)) - 1600
    short = clip[begins : begins + 9600]
    assert base.decode(conform.task(short)).language == "yo"
    assert base.decode(conform.task(short, likely=("de", "en"))).language == "en"
    assert base.decode(conform.task(recording("languages/fr-leopard.wav"), likely=("en",))).language == "fr"


@needs_weights("base")
@pytest.mark.parametrize(
    ("path", "heard", "said"),
    [
        ("es-leopard.wav", "es", {"sand", "white", "medium", "grain"}),
        ("it-leopard.wav", "it", {"radio", "songs"}),
    ],
)
def test_a_translation_is_english(path: str, heard: str, said: set[str]) -> None:
    assert recognizer("base").capabilities.translates
    asked = conform.task(recording(f"languages/{path}"), translate=True)
    found = recognizer("base").decode(asked)
    conform.check_words(found, asked)
    assert found.language == heard
    assert said <= set(spoken(join(found.words)))


@needs_weights("tiny.en")
def test_who_knows_english_alone_refuses_to_translate() -> None:
    assert not recognizer("tiny.en").capabilities.translates
    with pytest.raises(EngineError, match="does not translate"):
        recognizer("tiny.en").decode(conform.task(recording(JFK), translate=True))


@needs_weights("tiny.en")
async def test_two_workers_decode_at_once() -> None:
    decoder = LocalDecoder(find_weights("tiny.en"), name="x", threads=2, settings=DecodeSettings())
    engine = LocalRecognizer(decoder, deadline_s=60.0)
    asked = [conform.task(recording(JFK), Priority.REFRESH) for _ in range(4)]
    texts = {join(h.words) for h in await asyncio.gather(*map(engine.recognize, asked))}
    await engine.close()
    assert len(texts) == 1
