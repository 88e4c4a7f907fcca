"""Marked-up and plain outputs of the models that SGLang-Omni serves, whole and damaged."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise, zip_longest

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.contract import Finish, Priority, RecognitionTask, Word, join
from engine.policies import fun_asr, moss_td
from engine.policies.markup import CONTROLS, MARKUP, MarkupReader, Segment, parse, settle
from engine.policies.moss_td import INSTRUCTION
from engine.policies.serving import Reply
from engine.policies.text_words import continued
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
            [Segment("你好", 0.0, 1.2, 1), Segment("hello", None, 2.0, 2)],
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
        ("so [1.0][S01]a[2.0]", [Segment("so", None, 1.0, None), Segment("a", None, 2.0, 1)]),
        # Brackets that are no marks stay text.
        ("[0.0][S01][laughs] ha[1.0]", [Segment("[laughs] ha", 0.0, 1.0, 1)]),
        ("", []),
        ("[0.00][S01][1.00]", []),
    ],
)
def test_outputs_in_every_state(output: str, expected: list[Segment]) -> None:
    assert parse(output) == expected


_PIECE = st.sampled_from(
    (
        *("[0.00]", "[1.2]", "[99.9]", "[S01]", "[S2]", "[S", "[1.", "]", "[", "hello ", "你好", "[laughs]"),
        *("<|im_end|>", "<|im_", "<", "|>", "[9999999]", "[ 3 ]", "😀", "哈哈哈", "7", ".5]", "[18.0]", "\n"),
    )
)
_OUTPUT = st.lists(_PIECE, max_size=40).map("".join)


_CUT_CONTROLS = "|".join(re.escape(mark[:size]) for mark in CONTROLS for size in range(2, len(mark)))


def bare(output: str) -> str:
    """Its text alone: no marks, no space, no cut last mark."""
    output = re.sub(
        rf"(\[\s{{0,3}}(\d{{1,6}}(\.\d{{0,6}})?\s{{0,3}}|[Ss]\s{{0,3}}\d{{0,4}}\s{{0,3}})?|{_CUT_CONTROLS})\Z",
        "",
        output,
    )
    return re.sub(r"\s", "", MARKUP.sub("", output))


@given(_OUTPUT)
@example("<|im_哈哈哈")
@example("<|im_7")
def test_no_text_is_lost_and_times_are_in_order(output: str) -> None:
    segments = parse(output)
    assert re.sub(r"\s", "", "".join(segment.text for segment in segments)) == bare(output)
    floor = 0.0
    for segment in settle(segments, 20.0):
        assert segment.start is not None
        assert segment.end is not None
        assert floor <= segment.start <= segment.end <= 20.0
        floor = segment.end


@given(_OUTPUT, st.lists(st.integers(0, 300), max_size=12))
def test_however_an_output_is_cut_its_segments_are_the_same(output: str, cuts: list[int]) -> None:
    reader = MarkupReader()
    edges = [0, *sorted(min(cut, len(output)) for cut in cuts), len(output)]
    whole: list[Segment] = []
    for start, end in pairwise(edges):
        reader.feed(output[start:end])
        assert reader.segments[: len(whole)] == whole, "what is told stays"
        whole = list(reader.segments)
    assert reader.finish() == parse(output)


@given(_OUTPUT)
def test_nobody_is_named_whom_no_tag_names(output: str) -> None:
    named = {int(number) for number in re.findall(r"\[\s*[Ss]\s*(\d+)\s*\]", output)}
    assert {segment.speaker for segment in parse(output)} <= named | {None}


def test_a_new_segment_without_a_tag_has_no_speaker() -> None:
    """A second mark begins one; a single mark inside a speaker's text does not."""
    assert [s.speaker for s in parse("[0.0][S01]one[1.0][1.2]two[2.0]")] == [1, None]
    assert [s.speaker for s in parse("[0.0][S01]one[1.0]two[2.0]")] == [1, 1]


@pytest.mark.parametrize(
    ("output", "times"),
    [
        # A time that cannot be, and one out of order: the others stand.
        ("[0.0][S01]a[999.0][999.0][S02]b[4.0]", [(0.0, 2.0), (2.0, 4.0)]),
        ("[0.0][S01]a[18.0][2.0][S02]b[3.0][3.0][S01]c[4.0]", [(0.0, 2.0), (2.0, 3.0), (3.0, 4.0)]),
        # Overshoot by a marker's interval is the audio's end.
        ("[0.0][S01]a[24.0]", [(0.0, 20.0)]),
        # What no mark divides is divided by its text.
        ("[0.0][S01]aaa[S02]b[4.0]", [(0.0, 3.0), (3.0, 4.0)]),
        ("aa[S01]bb", [(0.0, 10.0), (10.0, 20.0)]),
    ],
)
def test_times_that_contradict_each_other(output: str, times: list[tuple[float, float]]) -> None:
    assert [(s.start, s.end) for s in settle(parse(output), 20.0)] == times


@given(_OUTPUT)
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


def test_segments_are_joined_as_their_scripts_are() -> None:
    output = "[0.0][S01]Good morning.[2.0][2.0][S02]Hello[3.0][3.0][S01]你好[4.0][4.0][S02]再见[5.0]"
    found = MOSS.read(task(), MOSS.ask(task(), None), Reply((), output))
    assert join(found.words) == "Good morning. Hello你好再见"


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
    assert FUN.read(task(), ask, Reply((), "字" * 240, told=False)).finish is Finish.LENGTH
    assert FUN.read(task(), ask, Reply((), "字" * 140, told=False)).finish is Finish.STOP
    assert FUN.read(task(), ask, Reply((), "字" * 240)).finish is Finish.STOP


SPOKEN = (
    *(
        "we",
        "walked",
        "along",
        "the",
        "old",
        "river",
        "我们",
        "沿着",
        "河",
        "走",
        "then",
        "a",
        "door",
        "opened",
    ),
    *("and", "he", "said", "no", "no", "no", "that", "is", "all"),
)


def said(first: int, last: int, shift: Sequence[int] = ()) -> list[Word]:
    """Words of a talk, half a second each; `shift` moves their times."""
    return [
        Word(text, place * 8_000 + move, place * 8_000 + 8_000 + move)
        for place, (text, move) in enumerate(zip_longest(SPOKEN, shift, fillvalue=0))
        if first <= place < last and isinstance(text, str) and isinstance(move, int)
    ]


@given(
    st.integers(1, len(SPOKEN)),
    st.integers(0, 4),
    st.integers(-16_000, 16_000),
    st.lists(st.integers(-2_000, 2_000), min_size=len(SPOKEN), max_size=len(SPOKEN)),
)
def test_committed_words_are_neither_said_twice_nor_lost(
    known: int, begin: int, drift: int, jitter: list[int]
) -> None:
    """Another decode gives all of its words other times, up to a second off, and a little more each."""
    prefix = said(min(begin, known - 1), known)
    words = said(min(begin, known - 1), len(SPOKEN), [drift + j for j in jitter])
    found = continued(words, prefix)
    # "no no no" says itself again: of those one more or less cannot be told from words alone.
    if len(prefix) > 1 and known not in (18, 19):
        assert [word.text for word in found] == list(SPOKEN[known:])
    assert all(word.start >= prefix[-1].end for word in found)


def test_without_common_words_time_decides() -> None:
    prefix = [Word("one", 0, 8_000), Word("two", 8_000, 16_000)]
    words = [Word("eins", 0, 8_000), Word("zwei", 8_000, 15_000), Word("drei", 16_000, 20_000)]
    assert [word.text for word in continued(words, prefix)] == ["drei"]
    assert continued(words, ()) == tuple(words)


def test_the_ladder_asks_for_more_then_freer_then_in_halves() -> None:
    asks = [MOSS.ask(task(attempt=attempt, context="Earlier."), None) for attempt in range(6)]
    assert [ask.max_new_tokens for ask in asks] == [512, *[1024] * 5]
    assert [ask.temperature for ask in asks] == [0.0, 0.0, 0.1, 0.1, 0.1, 0.1]
    assert [ask.repetition_penalty for ask in asks] == [1.0, 1.0, 1.0, 1.1, 1.1, 1.1]
    assert [ask.split for ask in asks] == [False] * 4 + [True] * 2
    assert MOSS.facts.tries == 5
