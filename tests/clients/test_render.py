"""One renderer for server and client: what people read and what players accept."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from streaming.wire.messages import Word
from streaming.wire.render import CUE_LINES, FORMATS, LINE_COLUMNS, columns, cues, render, srt, vtt

from .build import segment, words

TWO = [
    segment(1, 1, 1, words("It was late.", 1000), final=True),
    segment(2, 2, 1, words("Nobody came.", 9000), first_word=3, final=True),
]


def test_text_breaks_paragraphs_at_long_silence_and_at_a_new_speaker() -> None:
    assert render(TWO, "text") == "It was late.\nNobody came.\n"
    near = [
        segment(1, 1, 1, words("One two", 0), final=True),
        segment(2, 2, 1, words("three", 1200), first_word=2, final=True),
        segment(3, 3, 1, words("Four", 1800), first_word=3, final=True, speaker=2),
    ]
    assert render(near, "text") == "One two three\nFour\n"


def test_json_holds_text_and_words_and_no_bookkeeping() -> None:
    body = json.loads(render(TWO, "json", session="s"))
    assert body["session"] == "s"
    assert body["text"] == "It was late.\nNobody came."
    assert body["segments"][0]["words"][0] == {"text": "It", "start_ms": 1000, "end_ms": 1400}
    assert not {"seq", "rev", "partial", "type"} & set(body["segments"][0])


def test_srt_as_players_expect_it() -> None:
    assert srt(cues(TWO)) == (
        "1\n00:00:01,000 --> 00:00:02,400\nIt was late.\n\n2\n00:00:09,000 --> 00:00:10,000\nNobody came.\n"
    )


def test_vtt_escapes_and_names_the_speaker() -> None:
    said = [replace(segment(1, 1, 1, words("a <b> --> &c"), speaker=1, final=True), name="X & Y")]
    assert vtt(cues(said)) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.900\n<v X &amp; Y>a &lt;b&gt; --&gt; &amp;c\n"
    )


def test_only_committed_words_are_a_transcript() -> None:
    open_one = [segment(1, 1, 1, words("One"), partial=" maybe two")]
    assert all("maybe" not in render(open_one, format) for format in FORMATS)


def test_scripts_without_spaces_are_joined_without() -> None:
    said = tuple(Word(c, i * 200, i * 200 + 200, space=False) for i, c in enumerate("今天天气很好。" * 8))
    found = cues([segment(1, 1, 1, said, final=True)])
    assert "".join("".join(cue.lines) for cue in found) == "今天天气很好。" * 8
    assert columns("今天 ok") == 7


def test_fast_speech_fills_two_lines_and_no_more() -> None:
    said = words("another ordinary word " * 12, each_ms=120)
    found = cues([segment(1, 1, 1, said, final=True)])
    assert {len(cue.lines) for cue in found} == {CUE_LINES}
    assert len(found) > 2


def test_nothing_said_renders_as_nothing() -> None:
    assert [render([], format) for format in ("text", "srt", "vtt")] == ["", "", "WEBVTT\n"]
    assert json.loads(render([], "json"))["text"] == ""


def test_an_unknown_format_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="docx"):
        render([], "docx")


SPOKEN = st.lists(
    st.tuples(st.text("abcdé世.?!", min_size=1, max_size=50), st.integers(0, 3000), st.integers(0, 2000)),
    min_size=1,
    max_size=60,
)


@given(SPOKEN)
def test_cues_are_ordered_fit_the_screen_and_lose_no_word(spoken: list[tuple[str, int, int]]) -> None:
    at, said = 0, []
    for text, gap, length in spoken:
        said.append(Word(text, at + gap, at + gap + length))
        at += gap + length
    found = cues([segment(1, 1, 1, said, final=True)])
    assert " ".join(line for cue in found for line in cue.lines).split() == [w.text for w in said]
    for cue in found:
        assert cue.start_ms < cue.end_ms
        assert len(cue.lines) <= CUE_LINES
        assert all(columns(line) <= LINE_COLUMNS or " " not in line for line in cue.lines)
    assert all(a.end_ms <= max(b.start_ms, a.start_ms + 1) for a, b in pairwise(found))


@given(st.integers(0, 400_000_000))
def test_times_are_written_whole(ms: int) -> None:
    text = srt(cues([segment(1, 1, 1, (Word("x", ms, ms + 1500),), final=True)]))
    hours, minutes, seconds, rest = map(int, re.findall(r"\d+", text)[1:5])
    assert ((hours * 60 + minutes) * 60 + seconds) * 1000 + rest == ms
    assert minutes < 60
    assert seconds < 60
