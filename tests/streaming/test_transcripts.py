"""Core events as clients see them, and the record kept for HTTP."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from engine.contract import Word, join
from streaming.core.events import (
    Cover,
    Covered,
    Ended,
    Flushed,
    GapDeclared,
    Receipt,
    SegmentUpdated,
    SpeakerNamed,
    SpeakerRevised,
    Turn,
    TurnsSettled,
)
from streaming.kept.log import Cursor, Log
from streaming.kept.stored import decode, encode
from streaming.kept.transcripts import export, present
from streaming.wire import messages as wire

units = st.builds(
    Word,
    text=st.text("abcäß世界.", min_size=1, max_size=8),
    start=st.integers(0, 10**9),
    end=st.integers(0, 10**9),
    space=st.booleans(),
    confidence=st.none() | st.floats(0, 1),
)


def update(
    *words: Word, partial: tuple[Word, ...] = (), final: bool = False, number: int = 1
) -> SegmentUpdated:
    return SegmentUpdated(number, 2, 5, 16_000, 32_000, words, partial, final, "de")


def test_a_segment_in_milliseconds() -> None:
    sent = present(update(Word("Hallo", 16_000, 20_015, confidence=0.12345), Word("Welt", 20_800, 24_000)))
    assert sent == wire.Segment(
        seq=0,
        id=1,
        rev=2,
        first_word=5,
        start_ms=1000,
        end_ms=2000,
        speaker=None,
        text="Hallo Welt",
        words=(wire.Word("Hallo", 1000, 1250, 0.123), wire.Word("Welt", 1300, 1500)),
        partial="",
        final=False,
        language="de",
    )


@given(st.lists(units, max_size=6), st.lists(units, max_size=4))
def test_text_and_partial_read_on(words: list[Word], partial: list[Word]) -> None:
    sent = present(update(*words, partial=tuple(partial)))
    assert isinstance(sent, wire.Segment)
    assert sent.text + sent.partial == join([*words, *partial])


def test_other_events() -> None:
    assert present(GapDeclared(160, 320, "loop")) == wire.Gap(0, 10, 20, "loop")
    assert present(Flushed("x", 99)) == wire.Flushed(0, "x", 99)
    spans = (Covered(0, 160, Cover.TEXT), Covered(160, 480, Cover.GAP, "loop"))
    ended = present(Ended(Receipt(480, 3, spans)))
    assert isinstance(ended, wire.Ended)
    assert (ended.receipt.duration_ms, ended.receipt.gap_ms, ended.receipt.silence_samples) == (30, 20, 0)
    assert ended.receipt.spans[1] == wire.Span(160, 480, "gap", "loop")


@given(st.lists(units, max_size=10))
def test_packing_a_closed_segment_loses_nothing(words: list[Word]) -> None:
    sent = present(update(*words, final=True))
    log = Log()
    log.put(sent)
    assert log.segments() == [sent]


def test_the_newest_state_of_every_segment() -> None:
    log = Log()
    first, second = Word("one", 16_000, 20_000), Word("two", 20_000, 24_000)
    for event in (
        update(first),
        update(first, second, final=True),
        update(first, partial=(second,), number=2),
        GapDeclared(0, 160, "loop"),
    ):
        log.put(present(event))
    assert [s.text for s in log.segments()] == ["one two", "one"]
    document = json.loads(export(log, "json", "id"))
    assert (document["session"], document["finished"], document["gaps"]) == ("id", False, [[0, 10, "loop"]])
    log.put(present(Ended(Receipt(0, 0, ()))))
    assert json.loads(export(log, "json", "id"))["receipt"]["samples"] == 0


def test_speakers_are_revised_and_named_as_sent_and_as_kept() -> None:
    log = Log()
    one = Word("one", 16_000, 20_000)
    log.put(present(SpeakerNamed(2, "Ada", 0.7)))
    log.put(present(replace(update(one, final=True), speaker=2)))
    sent = log.state("segment:1")
    assert isinstance(sent, wire.Segment)
    assert (sent.speaker, sent.name) == (2, "Ada")
    log.put(present(update(one, number=3)))
    for segment, speaker in ((1, 4), (3, 2)):
        number = log.put(present(SpeakerRevised(segment, 9, speaker, False, 0.51234)))
        revised = log.state(f"speaker:{segment}")
        assert revised == wire.Speaker(
            number, segment, 9, speaker, False, UNSET if speaker == 4 else "Ada", 0.512
        )
    assert {(s.id, s.rev, s.speaker, s.name) for s in log.segments()} == {
        (1, 9, 4, UNSET),
        (3, 9, 2, "Ada"),
    }
    assert log.speakers == {2, 4}
    log.put(present(SpeakerNamed(2, "")))
    assert {s.name for s in log.segments()} == {UNSET}


def test_a_split_of_a_closed_segment_is_kept_in_order_of_time() -> None:
    log = Log()
    one, two = Word("one", 16_000, 20_000), Word("two", 20_000, 24_000)
    after = SegmentUpdated(2, 1, 7, 24_000, 30_000, (Word("three", 24_000, 30_000),), (), True)
    for event in (
        SegmentUpdated(1, 1, 5, 16_000, 24_000, (one, two), (), True),
        after,
        SegmentUpdated(1, 2, 5, 16_000, 20_000, (one,), (), True, speaker=1),
        SegmentUpdated(9, 1, 6, 20_000, 24_000, (two,), (), True, speaker=2),
    ):
        log.put(present(event))
    assert [(s.id, s.text, s.first_word) for s in log.segments()] == [
        (1, "one", 5),
        (9, "two", 6),
        (2, "three", 7),
    ]


def test_tracks_have_gaps_and_receipts_of_their_own() -> None:
    log = Log()
    first, second = (Receipt(160, n, (Covered(0, 160, Cover.TEXT),)) for n in (1, 2))
    log.put(present(GapDeclared(0, 160, "loop", 1)))
    assert log.gaps == [wire.Gap(0, 0, 10, "loop", 1)]
    log.put(present(Ended(Receipt(160, 3, first.spans), (first, second))))
    body = json.loads(export(log, "json", "id"))
    assert body["gaps"] == [[0, 10, "loop", 1]]
    assert (body["receipt"]["words"], [r["words"] for r in body["tracks"]]) == (3, [1, 2])


def test_turns_are_the_rttm_and_words_where_nobody_was_heard() -> None:
    """Turns go on over the borders of what was told at once; those of one person never overlap. A word a
    little beside a turn belongs to it; the others stand for themselves."""
    log, second = Log(), 16_000
    said = (Word("one", second, 2 * second), Word("two", 4 * second, 5 * second))
    late = (Word("three", 6 * second, 7 * second), Word("four", 7 * second, 8 * second))
    for event in (
        replace(update(*said, final=True), speaker=1),
        TurnsSettled((Turn(second // 2, 3 * second, 1), Turn(2 * second, 3 * second, None))),
        TurnsSettled((Turn(3 * second, 4 * second - 4000, 1),)),
        TurnsSettled((Turn(3 * second, 7 * second // 2, 1), Turn(11 * second, 12 * second, 2))),
        replace(update(*late, final=True, number=2), speaker=2, first_word=7),
        SpeakerNamed(1, "Ada King"),
    ):
        log.put(present(event))
    assert export(log, "rttm", "id") == (
        "SPEAKER id 1 0.500 3.250 <NA> <NA> Ada_King <NA> <NA>\n"
        "SPEAKER id 1 2.000 1.000 <NA> <NA> Unknown <NA> <NA>\n"
        "SPEAKER id 1 6.000 2.000 <NA> <NA> Speaker_2 <NA> <NA>\n"
        "SPEAKER id 1 11.000 1.000 <NA> <NA> Speaker_2 <NA> <NA>\n"
    )
    assert "two" in export(log, "text", "id")


def test_turns_are_kept_and_shown_to_no_reader() -> None:
    told: dict[str, tuple[int, bytes]] = {}
    log = Log(lambda key, seq, state: told.update({key: (seq, encode(state))}))
    log.put(present(update(Word("one", 16_000, 20_000), final=True)))
    for start in (0, 160_000):
        log.put(present(TurnsSettled((Turn(start, start + 16_000, 1),))))
    log.put(present(Ended(Receipt(0, 0, ()))))
    restored = Log()
    restored.restore(decode(data, seq) for seq, data in sorted(told.values()))
    assert [turn.start_ms for turn in restored.turns()] == [0, 10_000]
    assert restored.turns() == log.turns()
    cursor = Cursor(restored)
    assert [type(cursor.take()) for _ in range(3)] == [wire.Segment, wire.Ended, type(None)]


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("rttm", "SPEAKER id 1 1.000 1.000 <NA> <NA> Unknown <NA> <NA>\n"),
        ("stm", "id 1 Unknown 1.000 2.000 one two\n"),
        ("ctm", "id 1 1.000 0.250 one\nid 1 1.250 0.750 two\n"),
        ("text", "one two\n"),
        ("srt", "1\n00:00:01,000 --> 00:00:02,000\none two\n"),
        ("vtt", "WEBVTT\n\n00:00:01.000 --> 00:00:02.000\none two\n"),
    ],
)
def test_exports(format: str, text: str) -> None:
    log = Log()
    log.put(present(update(Word("one", 16_000, 20_000), Word("two", 20_000, 32_000), final=True)))
    assert export(log, format, "id") == text
    with pytest.raises(ValueError, match="doc"):
        export(log, "doc", "id")
