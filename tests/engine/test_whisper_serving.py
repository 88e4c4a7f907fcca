"""The encoder-decoder policy as a serving mechanism asks for it, with the packaged tokenizers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.contract import Finish, Priority, RecognitionTask, Word, join
from engine.guards import Alarm
from engine.policies.serving import Reply
from engine.policies.whisper import GOES_ON, POSITIONS, WhisperPolicy
from engine.policies.whisper_serving import WhisperServing
from engine.tokens import FileTokens
from engine.weights import find_weights

SPEECH = (np.random.default_rng(3).standard_normal(8 * 16_000) * 0.1).astype(np.float32)


def serving(model: str) -> tuple[WhisperServing, FileTokens]:
    tokens = FileTokens.open(find_weights(model) / "tokenizer.json")
    return WhisperServing(WhisperPolicy(tokens, multilingual=model == "base")), tokens


def task(**changes: Any) -> RecognitionTask:
    values: dict[str, Any] = {
        "id": "t",
        "session": "s",
        "audio": SPEECH,
        "start": 16_000,
        "priority": Priority.REFRESH,
    }
    return RecognitionTask(**values | changes)


def names(tokens: FileTokens, ids: tuple[int, ...]) -> list[str | None]:
    return [tokens.name(token) for token in ids]


def test_english_only_models_are_told_neither_language_nor_task() -> None:
    policy, tokens = serving("tiny.en")
    ask = policy.ask(task(), None)
    assert names(tokens, ask.input_ids or ()) == ["<|startoftranscript|>", "<|notimestamps|>"]
    assert not ask.detects


def test_context_and_forced_words_surround_the_start() -> None:
    policy, tokens = serving("base")
    words = (Word("It", 16_000, 17_000), Word("was", 17_000, 18_000))
    ask = policy.ask(task(context="Before that.", prefix=words), "en")
    found = names(tokens, ask.input_ids or ())
    start = found.index("<|startoftranscript|>")
    assert found[0] == "<|startofprev|>"
    assert found[start : start + 4] == [
        "<|startoftranscript|>",
        "<|en|>",
        "<|transcribe|>",
        "<|notimestamps|>",
    ]
    spelled = b"".join(tokens.piece(token) for token in ask.input_ids or ())
    assert spelled == b" Before that. It was"


def test_the_language_is_found_in_the_same_request() -> None:
    policy, tokens = serving("base")
    ask = policy.ask(task(), None)
    assert names(tokens, ask.input_ids or ()) == ["<|startoftranscript|>"]
    assert ask.detects
    header = [tokens.id(name) or 0 for name in ("<|zh|>", "<|transcribe|>", "<|notimestamps|>")]
    text = tokens.encode("你好")
    found = policy.read(task(), ask, Reply((*header, *text), "", logprobs=(-0.1,) * (3 + len(text))))
    assert (found.language, join(found.words)) == ("zh", "你好")
    assert found.language_probability == pytest.approx(0.905, abs=0.01)


def test_a_translation_waits_for_a_language_too() -> None:
    policy, tokens = serving("base")
    assert policy.facts.translates
    assert not serving("tiny.en")[0].facts.translates
    short = policy.detection(task(translate=True))
    assert short is not None
    assert names(tokens, short.input_ids or ()) == ["<|startoftranscript|>"]
    assert (short.detects, short.max_new_tokens) == (True, 1)
    ask = policy.ask(task(translate=True), "fr")
    found = ["<|startoftranscript|>", "<|fr|>", "<|translate|>", "<|notimestamps|>"]
    assert names(tokens, ask.input_ids or ()) == found
    unknown = policy.ask(task(translate=True), None)
    assert names(tokens, unknown.input_ids or ())[2] == "<|translate|>"
    assert not unknown.detects


def test_forced_words_wait_for_a_language() -> None:
    policy, tokens = serving("base")
    words = (Word("It", 16_000, 17_000),)
    short = policy.detection(task(prefix=words))
    assert short is not None
    assert short.max_new_tokens == 1
    assert policy.detection(task(prefix=words, language="en")) is None
    assert policy.heard(Reply((tokens.id("<|de|>") or 0,), "", logprobs=(0.0,))) == ("de", 1.0)
    assert policy.heard(Reply((), "")) == (None, 0.0)


def test_translating_is_going_astray() -> None:
    policy, tokens = serving("base")
    ask = policy.ask(task(), None)
    header = tuple(tokens.id(name) or 0 for name in ("<|zh|>", "<|translate|>", "<|notimestamps|>"))
    assert policy.astray(ask, Reply(header, "")) == "zh"
    assert policy.astray(policy.ask(task(), "zh"), Reply(header, "")) is None


@pytest.mark.parametrize("model", ["tiny.en", "base"])
def test_prompt_and_output_fit_the_positions(model: str) -> None:
    policy, _ = serving(model)
    long = task(audio=np.tile(SPEECH, 4)[: 30 * 16_000], context="so much to say " * 300, language="en")
    ask = policy.ask(long, "en")
    assert len(ask.input_ids or ()) + ask.max_new_tokens <= POSITIONS
    everything = tuple(Word(f"word{n}", 16_000 + n, 16_001 + n) for n in range(400))
    with pytest.raises(ValueError, match="no room"):
        policy.ask(task(prefix=everything), "en")


def test_what_stays_is_decoded_in_the_full_window() -> None:
    policy, _ = serving("tiny.en")
    asked = {kind: policy.ask(task(priority=kind), None).custom for kind in Priority}
    assert asked[Priority.FINAL] == asked[Priority.BATCH] == {"window_s": 30.0}
    assert asked[Priority.FIRST] == asked[Priority.REFRESH] == {}


def test_where_speech_lies_behind_known_words_the_engine_is_told_that_they_are_not_all() -> None:
    policy, _ = serving("tiny.en")
    known = (Word("It", 16_000, 48_000),)
    for priority in Priority:
        more = {"priority": priority, "prefix": known}
        assert policy.ask(task(voiced=GOES_ON, **more), None).custom["goes_on"] == 1.0
        assert "goes_on" not in policy.ask(task(voiced=GOES_ON - 1, **more), None).custom
    assert "goes_on" not in policy.ask(task(voiced=GOES_ON), None).custom


def test_times_are_estimated_and_inside_what_was_not_heard_before() -> None:
    policy, tokens = serving("tiny.en")
    words = (Word("It", 16_000, 48_000),)
    given = task(prefix=words)
    found = policy.read(given, policy.ask(given, None), Reply(tuple(tokens.encode(" was the best")), ""))
    assert join(found.words) == "was the best"
    assert all(word.estimated and 48_000 <= word.start <= word.end <= 144_000 for word in found.words)


def test_a_stopped_loop_keeps_one_round() -> None:
    policy, tokens = serving("tiny.en")
    ids = tuple(tokens.encode(" so" + " ha ha" * 12))
    found = policy.read(task(), policy.ask(task(), None), Reply(ids, "", alarm=Alarm.LOOP))
    assert found.finish is Finish.LOOP
    assert len(found.words) <= 4
