"""The reducer shows the newest state and notices every broken promise."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from clients.captions import Captions
from streaming.wire.messages import Ack, Ended, Error, Named, Segment, ServerMessage, Speaker, Word
from streaming.wire.render import joined

from .build import ready, receipt, segment, session, words


def reduced(messages: list[ServerMessage]) -> Captions:
    captions = Captions()
    for message in messages:
        captions.receive(message)
    return captions


def test_a_reader_sees_committed_text_then_what_may_change() -> None:
    messages = session("one two three four", 32_000)
    captions = reduced(messages[:4])
    assert captions.committed == "one two"
    assert captions.partial == " three four"
    assert not captions.ended
    captions = reduced(messages)
    assert captions.committed == "one two three four"
    assert captions.partial == ""
    assert captions.ended
    assert captions.acknowledged == 16_000
    assert captions.faults == []


def test_a_partial_of_a_new_segment_stands_apart_where_the_script_has_spaces() -> None:
    said = words("one two")
    captions = reduced(
        [ready(), segment(2, 1, 1, said, final=True), segment(3, 2, 1, (), partial="three", first_word=2)]
    )
    assert captions.committed + captions.partial == "one two three"
    chars = tuple(Word(c, i, i + 1, space=False) for i, c in enumerate("你好"))
    captions = reduced(
        [ready(), segment(2, 1, 1, chars, final=True), segment(3, 2, 1, (), partial="吗", first_word=2)]
    )
    assert captions.committed + captions.partial == "你好吗"


SAID = words("one two three four")


@pytest.mark.parametrize(
    ("later", "fault"),
    [
        ([segment(3, 1, 2, SAID[:1])], "took committed words back"),
        ([segment(3, 1, 2, (*SAID[:1], Word("too", 500, 900), SAID[2]))], "changed committed word 1"),
        ([segment(3, 1, 2, (SAID[0], Word("two", 520, 900)))], "changed committed word 1"),
        ([segment(3, 1, 1, SAID[:3])], "segment 1 rev 1 is not what it was"),
        ([segment(3, 1, 1, SAID[:2], final=True)], "segment 1 rev 1 is not what it was"),
        ([segment(3, 1, 3, SAID[:2]), segment(4, 1, 2, SAID[:2])], "follows rev 3"),
        ([Ack(1, 5)], "seq 1 follows 2"),
        ([segment(2, 1, 2, SAID[:2])], "seq 2 follows 2"),
        ([segment(3, 1, 2, SAID[:2], final=True), segment(4, 1, 3, SAID[:3])], "after the final one"),
        ([segment(3, 2, 1, SAID[:1], first_word=1)], "changed committed word 1"),
        ([segment(3, 2, 1, SAID[:1], first_word=3)], "skips to word 3"),
        ([segment(3, 1, 2, SAID[:2], first_word=1)], "moved its first word"),
        ([segment(3, 1, 2, SAID[:2], final=True, partial=" three")], "still has a partial"),
        ([segment(3, 1, 2, SAID[:2], partial=" thr\ufffd")], "broken character"),
        ([msgspec.structs.replace(segment(3, 1, 2, SAID[:2]), text="one")], "differs from its words"),
        ([Ack(3, 800), Ack(4, 799)], "ack went back"),
        ([ready(3)], "a second ready"),
        ([Error(3, "x", "y"), Ack(4, 5)], "after the last one"),
        ([Error(3, "x", "y"), Error(4, "x", "y")], "after the last one"),
        ([Ended(3, receipt(800, 2)), Ack(4, 5)], "after the last one"),
        ([Ended(3, receipt(800, 2)), Ended(4, receipt(800, 2))], "after the last one"),
        ([Ended(3, receipt(800, 2)), Error(4, "x", "y"), Ack(5, 5)], "after the last one"),
        ([Ended(3, receipt(800, 3))], "counts 3 words, 2 came"),
    ],
)
def test_each_broken_promise_is_a_fault(later: list[ServerMessage], fault: str) -> None:
    captions = reduced([ready(), segment(2, 1, 1, SAID[:2]), *later])
    assert any(fault in found for found in captions.faults), captions.faults


WHOLE = segment(2, 1, 1, SAID, final=True, speaker=1)
HEAD = segment(3, 1, 2, SAID[:2], final=True, speaker=1)
LATER = segment(4, 9, 1, words("five", 2000), first_word=4)
TAIL = segment(4, 2, 1, SAID[2:], first_word=2, final=True, speaker=2)
EMPTY = segment(3, 2, 1, (), first_word=2, partial=" five")
"""A segment that readers knew before the split: it may take no words of another."""


def test_a_split_moves_the_last_words_to_another_segment_and_changes_none() -> None:
    captions = reduced([ready(), WHOLE, HEAD, TAIL])
    assert (captions.faults, captions.revised) == ([], 0)
    assert captions.transcript == list(SAID)
    assert [(s.id, s.text) for s in captions.ordered()] == [(1, "one two"), (2, "three four")]
    assert [(t.speaker, t.text) for t in captions.turns(10)] == [(1, "one two"), (2, "three four")]


def test_a_split_may_come_in_three_parts_with_new_words_and_revisions_between() -> None:
    captions = reduced(
        [
            ready(),
            segment(2, 1, 1, SAID[:3], partial=" four"),
            segment(3, 1, 2, SAID[:1], final=True),
            Speaker(4, 1, 3, 1, frozen=True),
            segment(5, 7, 1, SAID[1:2], first_word=1, final=True),
            segment(6, 8, 1, SAID[2:], first_word=2, partial=" five"),
            segment(7, 8, 2, SAID[2:], first_word=2, final=True),
        ]
    )
    assert (captions.faults, captions.revised) == ([], 0)
    assert captions.committed == "one two three four"


@pytest.mark.parametrize(
    ("later", "fault"),
    [
        ([HEAD], "took committed words back: 2 from word 2"),
        ([HEAD, LATER, replace(TAIL, seq=5)], "took committed words back"),
        ([HEAD, Ended(4, receipt(800, 4))], "took committed words back"),
        ([HEAD, segment(4, 2, 1, SAID[2:3], first_word=2, final=True), Ack(5, 1)], "1 from word 3"),
        ([HEAD, segment(4, 2, 1, SAID[3:], first_word=3, final=True)], "took committed words back"),
        (
            [HEAD, replace(TAIL, words=(SAID[2], Word("for", 1500, 1900)), text="three for")],
            "changed committed",
        ),
        ([HEAD, replace(TAIL, words=(SAID[2], Word("four", 1500, 1901)))], "changed committed word 3"),
        ([replace(TAIL, seq=3)], "shows word 2, which segment 1 has"),
        ([replace(EMPTY, seq=3), replace(HEAD, seq=4), replace(TAIL, seq=5, rev=2)], "took committed words"),
        ([HEAD, TAIL, segment(5, 1, 3, SAID, final=True)], "came after the final one"),
        ([HEAD, TAIL, segment(5, 1, 3, SAID[:3], final=True)], "shows word 2, which segment 2 has"),
        ([segment(3, 1, 2, (), final=True), segment(4, 2, 1, SAID, final=True)], "took all of its"),
        ([segment(3, 1, 2, SAID[:2]), TAIL], "came after the final one"),
        (
            [Speaker(3, 1, 2, 1, frozen=True), replace(HEAD, seq=4, rev=3), replace(TAIL, seq=5)],
            "splits what",
        ),
        ([Speaker(3, 1, 2, 1, frozen=True), Speaker(4, 1, 3, 2, frozen=True)], "changes a frozen one"),
        ([Speaker(3, 1, 2, 1, frozen=True), Speaker(4, 1, 3, 1, frozen=False)], "changes a frozen one"),
        ([Speaker(3, 1, 2, 1, frozen=True), replace(WHOLE, seq=4, rev=3, speaker=2)], "a frozen speaker"),
        ([Speaker(3, 1, 1, 2, frozen=False)], "is late"),
        ([Speaker(3, 9, 1, 2, frozen=False)], "is late"),
        ([replace(WHOLE, seq=3, rev=2, track=1)], "changed its track"),
    ],
)
def test_nothing_but_a_split_may_move_words_and_nothing_a_frozen_speaker(
    later: list[ServerMessage], fault: str
) -> None:
    captions = reduced([ready(), WHOLE, *later])
    assert any(fault in found for found in captions.faults), captions.faults


def test_words_that_vanish_count_as_revised_once() -> None:
    captions = reduced([ready(), WHOLE, HEAD])
    assert captions.revised == 2
    captions = reduced([ready(), WHOLE, HEAD, LATER, replace(TAIL, seq=5)])
    assert captions.revised == 2 + 2  # lost, and then with a segment that has no right to them


def test_a_reader_that_was_cut_off_inside_splits_goes_on() -> None:
    """What it missed comes in its newest state: the words that it saw leave are at home when it is back."""
    captions = reduced([ready(), WHOLE, LATER, replace(HEAD, seq=5)])
    captions.receive(replace(ready(5), resumed=True))
    for message in (
        Named(6, 2, "Ada"),
        segment(7, 1, 3, SAID[:1], final=True),
        segment(8, 3, 1, SAID[1:2], first_word=1, final=True),
        replace(TAIL, seq=9, rev=2, words=SAID[2:3], text="three"),
        segment(10, 4, 1, SAID[3:], first_word=3, final=True),
        replace(LATER, seq=11),
    ):
        captions.receive(message)
    assert (captions.faults, captions.revised) == ([], 0)
    assert [s.text for s in captions.ordered()] == ["one", "two", "three", "four", "five"]


def test_what_a_reader_knows_may_come_again() -> None:
    frozen = Speaker(3, 1, 2, 2, frozen=True)
    known = replace(WHOLE, seq=5, rev=2, speaker=2, frozen=True)
    captions = reduced([ready(), WHOLE, frozen, replace(frozen, seq=4), known])
    assert captions.faults == []
    assert captions.frozen == {1}
    assert captions.seq == 5


def test_speakers_are_revised_named_and_unnamed() -> None:
    captions = reduced([ready(), WHOLE, Speaker(3, 1, 2, 2, frozen=False), Named(4, 2, "Ada")])
    assert captions.faults == []
    assert [(s.rev, s.speaker, s.name) for s in captions.ordered()] == [(2, 2, "Ada")]
    captions.receive(Named(5, 2, ""))
    assert [(t.speaker, t.name) for t in captions.turns(9)] == [(2, "Speaker 2")]


def test_a_turn_ends_where_another_speaks_and_what_may_change_stands_behind_its_speaker() -> None:
    captions = reduced(
        [
            ready(),
            segment(2, 1, 1, SAID[:1], final=True, speaker=1),
            segment(3, 2, 1, SAID[1:2], first_word=1, final=True, speaker=1),
            segment(4, 3, 1, SAID[2:3], first_word=2, partial=" four", speaker=2),
            replace(segment(5, 4, 1, (), first_word=3, partial="who"), start_ms=1500),
        ]
    )
    shown = [(t.name, t.text, t.partial) for t in captions.turns(99)]
    assert shown[:2] == [("Speaker 1", "one two", ""), ("Speaker 2", "three", " four")]
    assert shown[2:] == [(None, "", "who")]
    assert [t.text for t in captions.turns(1)] == ["three", ""]


def tracks(shuffled: int) -> list[ServerMessage]:
    """Two people at once, each on a track of their own; words are counted on each."""
    left = [segment(0, 1, n, SAID[:n], track=0, speaker=1) for n in (1, 2, 3, 4)]
    other = words("five six", 250)
    right = [segment(0, 2, n, other[:n], track=1, speaker=2) for n in (1, 2)]
    order = [*left[:2], *right[:1], *left[2:], *right[1:]] if shuffled else [*right, *left]
    end = Ended(0, receipt(8000, 6), tracks=(receipt(8000, 4), receipt(8000, 2)))
    return numbered([ready(), *order, end])


@pytest.mark.parametrize("order", [0, 1])
def test_tracks_have_transcripts_of_their_own(order: int) -> None:
    captions = reduced(tracks(order))
    assert (captions.faults, captions.revised) == ([], 0)
    assert [joined(t.words) for _, t in sorted(captions.tracks.items(), key=str)] == [
        "one two three four",
        "five six",
    ]
    assert captions.committed == "one two three four five six"
    assert len(captions.transcript) == 6
    for segment_ in captions.ordered():
        for index, word in enumerate(segment_.words):
            place = captions.place(segment_, index)
            assert place is not None
            assert captions.transcript[place] == word


def test_the_account_of_a_track_is_checked() -> None:
    *messages, end = tracks(0)
    assert isinstance(end, Ended)
    short = replace(end, tracks=(receipt(8000, 3), receipt(8000, 2)))
    assert any("track 0: 3 words, 4 came" in fault for fault in reduced([*messages, short]).faults)


def test_an_error_may_follow_the_receipt() -> None:
    captions = reduced([ready(), Ended(2, receipt(800, 0)), Error(3, "restarting", "the server shuts down")])
    assert captions.faults == []
    assert captions.error is not None
    assert captions.receipt is not None


def spoil(field: str, value: int) -> Callable[[], ServerMessage]:
    return lambda: Ended(2, msgspec.structs.replace(receipt(800, 0), **{field: value}))


@pytest.mark.parametrize("field", ["samples", "text_samples", "silence_samples", "gap_samples"])
def test_a_receipt_that_does_not_add_up_is_a_fault(field: str) -> None:
    assert reduced([ready(), Ended(2, receipt(800, 0))]).faults == []
    assert reduced([ready(), spoil(field, 799)()]).faults


def test_a_receipt_with_a_hole_is_a_fault() -> None:
    whole = receipt(800, 0, gap=100)
    holed = msgspec.structs.replace(whole, spans=whole.spans[1:])
    assert any("hole" in fault for fault in reduced([ready(), Ended(2, holed)]).faults)


def test_revised_words_are_counted_one_by_one() -> None:
    changed = (SAID[0], Word("zwei", 500, 900), Word("drei", 1000, 1400), SAID[3])
    captions = reduced([ready(), segment(2, 1, 1, SAID), segment(3, 1, 2, changed)])
    assert captions.revised == 2
    assert captions.committed == "one two three four"  # the first version is what was promised


def test_words_taken_back_count_as_revised() -> None:
    captions = reduced([ready(), segment(2, 1, 1, SAID), segment(3, 1, 2, SAID[:1])])
    assert captions.revised == 3


def test_faults_are_bounded() -> None:
    captions = Captions()
    for number in range(1000, 0, -1):
        captions.receive(Ack(7, number))
    assert len(captions.faults) == 100


@st.composite
def kept_promises(draw: st.DrawFn) -> list[ServerMessage]:
    """A well-behaved stream: segments one after the other, words committed bit by bit, then split where
    speakers change, their speakers revised and frozen."""
    messages: list[ServerMessage] = [ready(1)]
    ids = itertools.count(1)
    count = at = 0
    for _ in range(draw(st.integers(0, 4))):
        id = next(ids)
        said = words(" ".join(draw(st.lists(st.sampled_from(["a", "bc", "d."]), max_size=6))), at)
        steps = sorted(draw(st.lists(st.integers(0, len(said)), max_size=4)))
        for rev, step in enumerate(steps, 1):
            messages.append(segment(0, id, rev, said[:step], first_word=count, partial=" x"))
        messages.append(segment(0, id, len(steps) + 1, said, first_word=count, final=True))
        messages += draw(splits(id, len(steps) + 1, said, count, ids))
        count += len(said)
        at += 500 * len(said) + 700
    return numbered([*messages, Ended(0, receipt(1600, count))])


@st.composite
def splits(
    draw: st.DrawFn, id: int, rev: int, said: tuple[Word, ...], first: int, ids: Iterator[int]
) -> list[ServerMessage]:
    """What comes after the final state of a segment."""
    messages: list[ServerMessage] = []
    start = 0
    for cut in sorted(draw(st.sets(st.integers(1, len(said) - 1)))) if len(said) > 1 else []:
        messages.append(segment(0, id, rev + 1, said[start:cut], first_word=first + start, final=True))
        id, rev, start = next(ids), 1, cut
        messages.append(segment(0, id, rev, said[cut:], first_word=first + cut, final=True, speaker=2))
    revisions = draw(st.lists(st.integers(1, 3), max_size=3))
    for number, speaker in enumerate(revisions, 1):
        messages.append(Speaker(0, id, rev + number, speaker, frozen=number == len(revisions)))
    return messages


def numbered(messages: Iterable[ServerMessage]) -> list[ServerMessage]:
    """In order, from 1."""
    return [replace(message, seq=seq) for seq, message in enumerate(messages, 1)]


@given(kept_promises())
def test_a_stream_that_keeps_its_promises_has_no_fault(messages: list[ServerMessage]) -> None:
    captions = Captions()
    before: list[Word] = []
    for message in messages:
        captions.receive(message)
        assert captions.transcript[: len(before)] == before
        before = list(captions.transcript)
    assert captions.faults == []
    assert captions.revised == 0
    assert captions.partial == ""


@given(kept_promises(), st.data())
def test_a_lost_or_doubled_message_is_noticed(messages: list[ServerMessage], data: st.DataObject) -> None:
    index = data.draw(st.integers(1, len(messages) - 1))
    twice = [*messages[: index + 1], *messages[index:]]
    assert reduced(twice).faults
    # A number that is missing is no loss: the state may have been outdated before it was sent.
    lost = reduced([*messages[:index], *messages[index + 1 :]])
    assert lost.faults or not lost.ended or lost.committed == reduced(messages).committed


@given(kept_promises(), st.data())
def test_a_lost_half_of_a_split_is_noticed_whatever_the_numbers_say(
    messages: list[ServerMessage], data: st.DataObject
) -> None:
    known: set[int] = set()
    moved = []
    for index, message in enumerate(messages):
        if isinstance(message, Segment) and message.words:
            after = messages[index + 1]
            again = isinstance(after, Segment) and after.id == message.id
            if message.rev == 1 and message.first_word in known and not again:
                moved.append(index)
            known |= set(range(message.first_word, message.first_word + len(message.words)))
    if not moved:
        return
    index = data.draw(st.sampled_from(moved))
    captions = reduced(numbered([*messages[:index], *messages[index + 1 :]]))
    assert captions.revised
    assert any("took committed words back" in fault for fault in captions.faults)


@given(kept_promises(), st.data())
def test_one_changed_committed_word_is_noticed(messages: list[ServerMessage], data: st.DataObject) -> None:
    later = [
        i for i, m in enumerate(messages) if isinstance(m, Segment) and m.rev > 1 and _known(messages, i)
    ]
    if not later:
        return
    index = data.draw(st.sampled_from(later))
    message = messages[index]
    assert isinstance(message, Segment)
    spoiled = (Word("other", message.words[0].start_ms, message.words[0].end_ms), *message.words[1:])
    messages[index] = segment(
        message.seq, message.id, message.rev, spoiled, first_word=message.first_word, final=message.final
    )
    assert reduced(messages).revised == 1


def _known(messages: list[ServerMessage], index: int) -> bool:
    """Whether the message before already committed this segment's first word."""
    before, now = messages[index - 1], messages[index]
    return (
        isinstance(before, Segment)
        and isinstance(now, Segment)
        and before.id == now.id
        and bool(before.words)
    )
