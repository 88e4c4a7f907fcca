"""Prompt, limits and acceptance, on a vocabulary of our own and on the real ones."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract import Finish, Priority, RecognitionTask, Word
from engine.policies import POLICIES, load_policy
from engine.policies.whisper import (
    GOES_ON,
    MAX_CONTEXT,
    POSITIONS,
    Output,
    WhisperPolicy,
    expected,
    loop_start,
)
from engine.tokens import FileTokens
from engine.weights import find_weights
from tests.engine.real import needs_weights

from .vocabulary import LANGUAGES, ByteTokens, named

policy = WhisperPolicy(ByteTokens(), multilingual=True)
english = WhisperPolicy(ByteTokens(), multilingual=False)


def task(seconds: float = 1.0, **more: object) -> RecognitionTask:
    audio = np.zeros(int(seconds * 16_000), np.float32)
    return replace(RecognitionTask("1", "s", audio, 0, Priority.REFRESH), **more)  # type: ignore[arg-type] # test shorthand


def words(*texts: str, end: int = 0) -> tuple[Word, ...]:
    return tuple(Word(text, 0, end) for text in texts)


def said(text: str, **more: object) -> Output:
    output = Output(tuple(text.encode()), -0.2, 0.1, full=False)
    return replace(output, **more)  # type: ignore[arg-type] # test shorthand


def test_the_prompt_of_a_multilingual_model() -> None:
    plan = policy.plan(task(context="before", prefix=words("so", "far")), "en")
    assert named(plan.prompt) == (
        "<|startofprev|> before<|startoftranscript|><|en|><|transcribe|><|notimestamps|> so far"
    )
    assert plan.prompt == [*plan.head, *plan.prefix]


def test_an_english_only_model_knows_neither_language_nor_task() -> None:
    assert named(english.plan(task(), None).prompt) == "<|startoftranscript|><|notimestamps|>"
    assert english.languages == ("en",)
    with pytest.raises(ValueError, match="language 'zh' is not one of the English"):
        english.plan(task(), "zh")


def test_a_translation_is_asked_for_by_its_task() -> None:
    plan = policy.plan(task(4.0, translate=True), "zh")
    assert named(plan.prompt) == "<|startoftranscript|><|zh|><|translate|><|notimestamps|>"
    assert plan.sot == policy.sot("zh", translate=True)
    # English is written, in fewer tokens than Chinese would be.
    assert plan.budget == policy.plan(task(4.0), "en").budget < policy.plan(task(4.0), "zh").budget
    with pytest.raises(ValueError, match="English alone does not translate"):
        english.plan(task(translate=True), None)


def test_hotwords_stand_before_the_context() -> None:
    plan = policy.plan(task(context="go", hotwords=("Kubernetes", "Ada")), "en")
    assert named(plan.head).startswith("<|startofprev|> Kubernetes, Ada. go<|startoftranscript|>")


def test_retries_leave_the_context_out_and_then_sample() -> None:
    rungs = [policy.plan(task(context="before", attempt=attempt), "en") for attempt in range(6)]
    assert ["<|startofprev|>" in named(plan.head) for plan in rungs] == [True] + [False] * 5
    assert [plan.rung.temperature for plan in rungs] == [0.0, 0.0, 0.2, 0.4, 0.4, 0.4]
    assert rungs[2].rung.repetition_penalty > 1.0


def test_known_words_do_not_end_what_is_said_where_speech_lies_behind_them() -> None:
    known = words("Yes.", end=8_000)
    assert policy.plan(task(4.0, prefix=known, voiced=GOES_ON), "en").goes_on
    assert not policy.plan(task(4.0, prefix=known, voiced=GOES_ON - 1), "en").goes_on
    assert not policy.plan(task(4.0, voiced=GOES_ON), "en").goes_on, (
        "without them no output begins with the end"
    )


def test_languages_come_from_the_vocabulary() -> None:
    assert policy.languages == tuple({"jw": "jv"}.get(name, name) for name in LANGUAGES)
    assert "<|jw|>" in named(policy.plan(task(), "jv").prompt)
    assert policy.language_of("<|jw|>") == "jv"
    with pytest.raises(ValueError, match="'xx' is not one of the 5 languages"):
        policy.plan(task(), "xx")


def test_a_guess_is_one_of_the_likely_languages() -> None:
    guess = [("ko", 0.6), ("ja", 0.2), ("en", 0.1)]
    assert expected(guess, ()) == ("ko", 0.6)
    assert expected(guess, ("en",)) == ("en", 0.1)
    assert expected(guess, ("en", "ja")) == ("ja", 0.2), "by what was heard, not by their order"
    assert expected(guess, ("xx",)) == ("ko", 0.6), "one that the model does not know is no help"
    assert expected([("ko", 0.8), ("en", 0.1)], ("en",)) == ("ko", 0.8), "what is no guess stays"


def test_a_vocabulary_of_another_family_is_refused_by_name() -> None:
    class Other(ByteTokens):
        def id(self, token: str) -> int | None:
            return None if token == "<|startofprev|>" else super().id(token)

    with pytest.raises(ValueError, match=r"no <\|startofprev\|>"):
        WhisperPolicy(Other(), multilingual=True)


def test_the_budget_follows_the_audio_that_is_still_to_be_said() -> None:
    assert policy.budget(task(10.0), "en") == 90
    assert policy.budget(task(10.0, prefix=words("x", end=8 * 16_000)), "en") == 26
    assert policy.budget(task(10.0), "zh") > policy.budget(task(10.0), "en")
    assert policy.budget(task(10.0), "hi") > policy.budget(task(10.0), "zh")


def test_context_is_cut_at_its_beginning_and_at_a_word() -> None:
    plan = policy.plan(task(context="alpha beta " * 60), "en")
    context = named(plan.head).partition("<|startoftranscript|>")[0].removeprefix("<|startofprev|>")
    assert context.startswith((" alpha", " beta"))
    assert context.endswith(" alpha beta")
    assert len(context) <= MAX_CONTEXT


@given(
    st.floats(0.0, 30.0),
    st.text(st.sampled_from("ab 你é"), max_size=600),
    st.text(st.sampled_from("ab你"), min_size=1, max_size=150),
    st.sampled_from(policy.languages),
    st.lists(st.text(st.sampled_from("ab"), min_size=1, max_size=9), max_size=40),
)
def test_prompt_and_output_fit_the_positions(
    seconds: float, context: str, prefix: str, language: str, hotwords: list[str]
) -> None:
    asked = task(seconds, context=context, prefix=words(prefix), hotwords=tuple(hotwords))
    try:
        plan = policy.plan(asked, language)
    except ValueError:
        assert len(prefix.encode()) > POSITIONS - 10
        return
    assert plan.budget >= 1
    assert len(plan.prompt) + plan.budget <= POSITIONS
    assert plan.prefix == tuple(f" {prefix}".encode())
    assert plan.head[-1] == policy.special.no_timestamps
    head = named(plan.head).partition("<|startoftranscript|>")[0]
    assert len(head.removeprefix("<|startofprev|>")) <= MAX_CONTEXT


def test_plain_text_is_accepted() -> None:
    verdict = policy.judge(said(" hello there"))
    assert verdict.finish is Finish.STOP
    assert [unit.text for unit in policy.units(verdict.ids)] == ["hello", "there"]


@pytest.mark.parametrize(
    ("logprob", "no_speech", "kept"),
    [(-0.6, 0.95, False), (-1.6, 0.6, False), (-0.9, 0.62, True), (-1.5, 0.3, True), (-0.2, 0.57, True)],
)
def test_doubts_are_summed(logprob: float, no_speech: float, kept: bool) -> None:
    output = said(" you", mean_logprob=logprob, no_speech=no_speech)
    assert bool(policy.judge(output).ids) is kept


def test_punctuation_alone_is_nothing() -> None:
    assert policy.judge(said(" . . .")).ids == ()


def test_an_exhausted_budget_is_told() -> None:
    assert policy.judge(said(" and then", full=True)).finish is Finish.LENGTH


def test_a_loop_keeps_its_first_round_and_is_nothing_where_speech_is_doubtful() -> None:
    looping = said(" yes" + ", it was the age" * 6, full=True)
    verdict = policy.judge(looping)
    assert verdict.finish is Finish.LOOP
    assert bytes(verdict.ids) == b" yes, it was the age"
    assert policy.judge(replace(looping, no_speech=0.7)).ids == ()


def test_text_that_compresses_too_well_is_a_loop() -> None:
    text = "".join(f" ha{mark}" for mark in "!?.," * 20)[: 78 * 4]
    verdict = policy.judge(said(text + " stop it"))
    assert (verdict.ids, verdict.finish) == ((), Finish.LOOP), "of which no round is known"


def test_people_do_repeat_themselves() -> None:
    assert policy.judge(said(" no no no, thou also, thou also")).finish is Finish.STOP


@given(st.lists(st.integers(0, 9), max_size=12), st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_every_repetition_at_the_end_is_found(before: list[int], round_: list[int]) -> None:
    start = loop_start([*before, *round_ * 9], 4)
    assert start is not None
    assert start <= len(before) + len(round_)


def test_the_registry_names_real_classes() -> None:
    assert load_policy("whisper") is WhisperPolicy
    for name in POLICIES:
        assert load_policy(name) is not None
    with pytest.raises(LookupError, match="no policy 'nobody'; there are: "):
        load_policy("nobody")


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "multilingual"),
    [
        pytest.param("base", True, marks=needs_weights("base")),
        pytest.param("tiny.en", False, marks=needs_weights("tiny.en")),
    ],
)
def test_real_vocabularies(name: str, multilingual: bool) -> None:
    folder = find_weights(name)
    real = WhisperPolicy(FileTokens.open(folder / "tokenizer.json"), multilingual=multilingual)
    published = json.loads((folder / "config.json").read_text("utf-8"))
    assert set(real.suppressed) == {*published["suppress_ids"], real.special.no_timestamps}
    assert len(real.languages) == (99 if multilingual else 1)
    if multilingual:
        ids = [real.sot(code)[1] for code in real.languages]
        assert ids == published["lang_ids"]
