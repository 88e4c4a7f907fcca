"""Marked-up and plain outputs of the models that SGLang-Omni serves, whole and damaged."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract import Finish, Priority, RecognitionTask, Word, join
from engine.policies import fun_asr, moss_td
from engine.policies.moss_td import INSTRUCTION, Segment, parse, settle
from engine.policies.serving import Reply
from engine.policies.verdict import judged

MOSS = moss_td.MossTdServing()
FUN = fun_asr.FunAsrServing()
NOISE = (np.random.default_rng(5).standard_normal(20 * 16_000) * 0.1).astype(np.float32)


def task(**changes: object) -> RecognitionTask:
    values: dict[str, object] = {
        "id": "t",
        "session": "s",
        "audio": NOISE,
        "start": 16_000,
        "priority": Priority.FINAL,
    }
    return RecognitionTask(**values | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            "[0.00][S01]hello[1.20][1.20][S02]hi there[2.50]",
            [Segment("hello", 0.0, 1.2, 1), Segment("hi there", 1.2, 2.5, 2)],
        ),
        # The end mark is also the next start.
        (
            "[0.00][S01]你好[1.20][S02]hello[2.0]",
            [Segment("你好", 0.0, 1.2, 1), Segment("hello", 1.2, 2.0, 2)],
        ),
        # The end mark is missing.
        ("[0.00][S01]one[S02]two[3.0]", [Segment("one", 0.0, None, 1), Segment("two", None, 3.0, 2)]),
        # The last segment is not closed, its last bracket cut.
        ("[0.00][S01]one[1.0][1.5][S02]two [2.", [Segment("one", 0.0, 1.0, 1), Segment("two", 1.5, None, 2)]),
        ("[0.00][S01]one[1.0][1.5][S0", [Segment("one", 0.0, 1.0, 1)]),
        # A tag with one digit, another with three, small letters, spaces.
        ("[0][S1]a[1][ 1.0 ][s002]b[2]", [Segment("a", 0.0, 1.0, 1), Segment("b", 1.0, 2.0, 2)]),
        # No marks at all.
        ("just words", [Segment("just words", None, None, None)]),
        # Text before the first mark.
        ("so [1.0][S01]a[2.0]", [Segment("so", None, 1.0, None), Segment("a", 1.0, 2.0, 1)]),
        # Brackets that are no marks stay text.
        ("[0.0][S01][laughs] ha[1.0]", [Segment("[laughs] ha", 0.0, 1.0, 1)]),
        ("", []),
        ("[0.00][S01][1.00]", []),
    ],
)
def test_outputs_in_every_state(output: str, expected: list[Segment]) -> None:
    assert parse(output) == expected


_PIECE = st.sampled_from(
    ["[0.00]", "[1.2]", "[99.9]", "[S01]", "[S2]", "[S", "[1.", "]", "[", "hello ", "你好", "[laughs]", "\n"]
)


@given(st.lists(_PIECE, max_size=30).map("".join))
def test_no_text_is_lost_and_times_are_in_order(output: str) -> None:
    segments = parse(output)
    said = "".join(segment.text for segment in segments)
    bare = moss_td.MARKUP.sub("", moss_td._CUT.sub("", output))
    assert re.sub(r"\s", "", said) == re.sub(r"\s", "", bare)
    settled = settle(segments, 20.0)
    floor = 0.0
    for segment in settled:
        assert segment.start is not None
        assert segment.end is not None
        assert floor <= segment.start <= segment.end <= 20.0
        floor = segment.start


@given(st.lists(_PIECE, max_size=30).map("".join))
def test_any_output_becomes_words_inside_the_audio(output: str) -> None:
    found = MOSS.read(task(), MOSS.ask(task(), None), Reply((), output))
    assert all(16_000 <= word.start <= word.end <= 336_000 for word in found.words)


def test_words_carry_local_speakers_and_overshoot_is_clamped() -> None:
    output = "[0.00][S01]Good morning.[2.00][2.00][S02]Hello[24.30]"
    found = MOSS.read(task(), MOSS.ask(task(), None), Reply((), output))
    assert [(word.text, word.tag) for word in found.words] == [
        ("Good", "S01"),
        ("morning.", "S01"),
        ("Hello", "S02"),
    ]
    assert found.words[1].end <= 16_000 + 32_000
    assert found.words[-1].end <= 336_000


def test_the_instruction_stays_whatever_is_added() -> None:
    ask = MOSS.ask(task(context="Earlier.", hotwords=("Aroon",)), None)
    assert str(ask.text).startswith(INSTRUCTION)
    assert "Earlier." in str(ask.text)
    assert "Aroon" in str(ask.text)
    later = MOSS.ask(task(context="Earlier.", attempt=1), None)
    assert later.text == INSTRUCTION


def test_budget_grows_with_the_audio_and_fits_the_context() -> None:
    assert moss_td.budget(0.0) == 512
    assert moss_td.budget(60.0) == 600
    assert moss_td.budget(38.7 * 60) == 23_220
    assert moss_td.budget(90 * 60) == 54_000
    with pytest.raises(ValueError, match="no room"):
        moss_td.budget(3 * 3600)


def test_committed_words_are_left_out_by_their_times() -> None:
    prefix = (Word("Good", 16_000, 30_000), Word("morning.", 30_000, 48_000))
    output = "[0.00][S01]Good morning.[2.00][2.00][S02]Hello[4.00]"
    found = MOSS.read(task(prefix=prefix), MOSS.ask(task(), None), Reply((), output))
    assert join(found.words) == "Hello"


def test_a_transcript_that_stops_early_counts_as_cut() -> None:
    minutes = task(audio=np.tile(NOISE, 6))
    ask = MOSS.ask(minutes, None)

    def finish(output: str) -> Finish:
        reply = Reply((), output)
        return judged(minutes, reply, MOSS.read(minutes, ask, reply))[0].finish

    assert finish("[0.0][S01]so[3.0]") is Finish.LENGTH
    assert finish("[0.0][S01]so[119.0]") is Finish.STOP


def test_fun_asr_stays_inside_what_its_route_takes() -> None:
    assert [fun_asr.budget(s) for s in (0.0, 1.0, 15.0, 30.0, 60.0)] == [16, 16, 100, 200, 200]
    assert fun_asr.hotword_list(("a, b", " c ", ",")) == "a  b,c"
    assert FUN.facts.native_s == 30.0
    ask = FUN.ask(task(hotwords=("达摩院",), language="en"), "en")
    assert (ask.text, dict(ask.custom)) == ("达摩院", {"language": "en"})
    assert FUN.ask(task(attempt=1, hotwords=("x",)), "zh").text == ""


def test_fun_asr_words_are_estimated() -> None:
    found = FUN.read(task(), FUN.ask(task(), None), Reply((), "欢迎大家"))
    assert join(found.words) == "欢迎大家"
    assert len(found.words) == 4
    assert all(word.estimated for word in found.words)


def test_fun_asr_at_its_budget_counts_as_cut() -> None:
    ask = FUN.ask(task(), None)
    assert FUN.read(task(), ask, Reply((1,) * ask.max_new_tokens, "x")).finish is Finish.LENGTH
