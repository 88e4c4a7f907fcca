"""One renderer for server and client: what people read and what players accept."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from streaming.wire.cues import CUE_LINES, LINE_COLUMNS
from streaming.wire.lines import columns
from streaming.wire.messages import Word
from streaming.wire.render import FORMATS, by_time, cues, render, srt, vtt

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
    assert render(near, "text") == "Unknown: One two three\nSpeaker 2: Four\n"
    assert render(near[:2], "text") == "One two three\n"


def test_json_holds_text_and_words_and_no_bookkeeping() -> None:
    body = json.loads(render(TWO, "json", session="s"))
    assert body["session"] == "s"
    assert body["text"] == "It was late.\nNobody came."
    assert body["segments"][0]["words"][0] == {"text": "It", "start_ms": 1000, "end_ms": 1400}
    assert not {"seq", "rev", "partial", "type"} & set(body["segments"][0])


def test_srt_as_players_expect_it() -> None:
    assert srt(cues(TWO)) == (
        "1\n00:00:01,000 --> 00:00:02,400\nIt was late.\n\n2\n00:00:09,000 --> 00:00:09,900\nNobody came.\n"
    )


def test_vtt_escapes_and_names_the_speaker() -> None:
    said = [replace(segment(1, 1, 1, words("a <b> --> &c"), speaker=1, final=True), name="X & Y")]
    assert vtt(cues(said)) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.900\n<v X &amp; Y>a &lt;b&gt; --&gt; &amp;c\n"
    )


ADA = replace(segment(1, 1, 1, words("One two.", 0), speaker=1, final=True), name="Ada King\n")
TALK = [
    ADA,
    segment(2, 2, 1, words("Three", 1000), first_word=2, speaker=2, final=True),
    segment(3, 3, 1, words("Four", 2000), first_word=3, final=True),
    segment(4, 4, 1, (), first_word=4, partial="five", speaker=2),
]


def test_every_format_says_who_speaks() -> None:
    assert render(TALK, "text") == "Ada King: One two.\nSpeaker 2: Three\nUnknown: Four\n"
    assert "\nAda King: One two.\n" in render(TALK, "srt")
    assert "\n<v Speaker 2>Three\n" in render(TALK, "vtt")
    body = json.loads(render(TALK, "json"))
    assert body["text"] == "One two.\nThree\nFour"
    assert [(s["speaker"], s.get("name")) for s in body["segments"][:3]] == [
        (1, "Ada King\n"),
        (2, None),
        (None, None),
    ]


def test_scoring_formats_as_their_readers_expect_them() -> None:
    assert render(TALK, "rttm", recording="my talk") == (
        "SPEAKER my_talk 1 0.000 0.900 <NA> <NA> Ada_King <NA> <NA>\n"
        "SPEAKER my_talk 1 1.000 0.400 <NA> <NA> Speaker_2 <NA> <NA>\n"
        "SPEAKER my_talk 1 2.000 0.400 <NA> <NA> Unknown <NA> <NA>\n"
    )
    assert render(TALK, "stm", recording="t") == (
        "t 1 Ada_King 0.000 0.900 One two.\nt 1 Speaker_2 1.000 1.400 Three\nt 1 Unknown 2.000 2.400 Four\n"
    )
    assert render(TALK, "ctm", recording="t") == (
        "t 1 0.000 0.400 One\nt 1 0.500 0.400 two.\nt 1 1.000 0.400 Three\nt 1 2.000 0.400 Four\n"
    )
    sure = segment(1, 1, 1, (Word("so", 62_005, 63_000, 0.5),), final=True)
    assert render([sure], "ctm", recording="t") == "t 1 62.005 0.995 so 0.500\n"


def test_whoever_is_not_known_is_not_taken_for_the_one_before() -> None:
    known = segment(1, 1, 1, words("One", 0), speaker=1, final=True)
    unknown = segment(2, 2, 1, words("two", 5000), final=True)
    assert [cue.speaker for cue in cues([known, unknown])] == ["Speaker 1", "Unknown"]
    assert "Unknown: two" in render([known, unknown], "srt")
    assert "<v Unknown>two" in render([known, unknown], "vtt")
    assert [cue.speaker for cue in cues([unknown])] == [None], "where nobody is known nobody is named"


def test_tracks_are_channels_and_stand_in_order_of_time() -> None:
    first = replace(segment(1, 1, 1, words("a b c d", 0, 1000), speaker=1, final=True), track=0)
    second = replace(segment(2, 2, 1, words("x y", 1500, 100), speaker=2, final=True), track=1)
    both = by_time([second, first])
    assert render(both, "text") == "Speaker 1: a b c d\nSpeaker 2: x y\n"
    assert [line.split()[1] for line in render(both, "ctm").splitlines()] == ["1"] * 4 + ["2"] * 2
    assert [line.split()[1] for line in render(both, "stm").splitlines()] == ["1", "2"]
    assert [line.split()[2] for line in render(both, "rttm").splitlines()] == ["1", "2"]
    # Speech of long pauses is several cues, and those of the other track come between them.
    late = replace(segment(1, 1, 1, words("a b c d", 0, 3000), speaker=1, final=True), track=0)
    starts = [cue.start_ms for cue in cues(by_time([late, second]))]
    assert starts == sorted(starts) == [0, 1500, 3000, 6000, 9000]


NAMES = st.text(min_size=1, max_size=20)


@given(NAMES, NAMES)
def test_no_name_breaks_a_line_or_a_field(name: str, recording: str) -> None:
    said = [replace(ADA, name=name)]
    assert len(render(said, "text").splitlines()) == 1
    assert len(render(said, "vtt").splitlines()) == 4
    (rttm,) = render(said, "rttm", recording=recording).splitlines()
    assert len(rttm.split()) == 10
    (stm,) = render(said, "stm", recording=recording).splitlines()
    assert stm.split()[3:] == ["0.000", "0.900", "One", "two."]
    assert {len(line.split()) for line in render(said, "ctm", recording=recording).splitlines()} == {5}


PIECES = [
    *("\n", "\r", "\x85", "\u2028", "\x0b", "\t", "\x00", " ", "<v Eve>"),
    *("x", "<", ">", "-->", "</v>", "&lt;", ";;", "7", "NOTE", "STYLE"),
    *("00:00:09.000 --> 00:00:10.000", "00:00:09,000 --> 00:00:10,000"),
]
FORGED = st.one_of(
    st.text(min_size=1, max_size=20),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join),
).filter(lambda text: any(c.isprintable() and not c.isspace() for c in text))
FIELDS = {"rttm": 10, "ctm": 5}


@given(FORGED, st.lists(FORGED, min_size=1, max_size=3), FORGED)
def test_neither_names_nor_words_forge_a_transcript(name: str, said: list[str], recording: str) -> None:
    """What a participant is called, and what a model or a function that strikes words out writes, stays in
    its place: no line, cue, tag, field or comment of its own."""
    spoken = tuple(Word(text, 100 * i, 100 * i + 100) for i, text in enumerate(said))
    talk = [replace(segment(1, 1, 1, spoken, speaker=1, final=True), name=name)]
    assert len(render(talk, "text").splitlines()) == 1
    for format in ("srt", "vtt"):
        for number, block in enumerate(render(talk, format).removeprefix("WEBVTT\n\n").split("\n\n"), 1):
            timing, *lines = block.removeprefix(f"{number}\n").splitlines()
            assert re.fullmatch(r"[0-9:.,]{12} --> [0-9:.,]{12}", timing)
            assert 1 <= len(lines) <= CUE_LINES
            body = "\n".join(lines)
            assert "-->" not in body
            assert set(re.findall("<[^ >]*", body)) <= ({"<v"} if format == "vtt" else set())
            assert body.count("<") == body.count(">") == (format == "vtt")
    for format in ("rttm", "stm", "ctm"):
        lines = render(talk, format, recording=recording).splitlines()
        assert len(lines) == (len(said) if format == "ctm" else 1)
        assert not any(line.startswith(";;") for line in lines)
        assert format != "stm" or "<" not in lines[0].split(maxsplit=5)[5], "a label of its own"
        assert all(len(line.split()) == FIELDS[format] for line in lines if format in FIELDS)
        assert all(len(re.findall(r"\d+\.\d{3}", " ".join(line.split()[3:5]))) >= 1 for line in lines)


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
