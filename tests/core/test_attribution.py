"""Segments get speakers by time; a split moves words and changes nothing else."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contract import Word
from streaming.core.attribution import Attribution, Numbered
from streaming.core.events import Event, SegmentUpdated, SpeakerRevised
from streaming.core.speakers import Who

SECOND = 16_000


@dataclass
class Timeline:
    """Speaker `speakers[i]` speaks from `borders[i]` on."""

    borders: list[int] = field(default_factory=lambda: [0])
    speakers: list[int | None] = field(default_factory=lambda: [None])
    heard: int = 0
    frozen: int = 0

    def who(self, start: int, end: int) -> Who:
        if end > self.heard:
            return Who(None, None, False)
        at = bisect_right(self.borders, (start + end) // 2) - 1
        return Who(self.speakers[at], 0.8, False)


@dataclass
class Reader:
    """What a client keeps, checked against what it is promised."""

    segments: dict[int, SegmentUpdated] = field(default_factory=dict)
    revisions: dict[int, int] = field(default_factory=dict)
    labels: dict[int, int | None] = field(default_factory=dict)
    frozen: set[int] = field(default_factory=set)
    words: list[Word] = field(default_factory=list)

    def read(self, events: Sequence[Event]) -> None:
        for event in events:
            assert isinstance(event, SegmentUpdated | SpeakerRevised)
            id = event.segment
            assert event.revision == self.revisions.get(id, 0) + 1
            self.revisions[id] = event.revision
            assert id not in self.frozen or event.speaker == self.labels[id], "a frozen label changed"
            self.labels[id] = event.speaker
            if isinstance(event, SpeakerRevised):
                assert id in self.segments
                assert id not in self.frozen, "frozen is the last word"
                if event.frozen:
                    self.frozen.add(id)
                continue
            for index, word in enumerate(event.words, event.first_word):
                if index < len(self.words):
                    assert self.words[index] == word, "a committed word changed"
                else:
                    assert index == len(self.words)
                    self.words.append(word)
            self.segments[id] = event
        self._tile()

    def _tile(self) -> None:
        """Every word is in exactly one segment."""
        owned = sorted(
            i for s in self.segments.values() for i in range(s.first_word, s.first_word + len(s.words))
        )
        assert owned == list(range(len(self.words)))

    def spoken(self) -> list[tuple[int | None, str]]:
        said = sorted((s for s in self.segments.values() if s.words), key=lambda s: s.first_word)
        return [(self.labels[s.segment], " ".join(w.text for w in s.words)) for s in said]


def words(count: int, at: int = 0) -> tuple[Word, ...]:
    """`count` words of 0.4 s, one every half second."""
    half = SECOND // 2
    return tuple(Word(f"w{i}", at + i * half, at + i * half + half * 4 // 5) for i in range(count))


def segment(said: Sequence[Word], *, final: bool = False, partial: Sequence[Word] = ()) -> SegmentUpdated:
    end = (*said, *partial)[-1].end if said or partial else 0
    return SegmentUpdated(1, 1, 0, 0, end, tuple(said), tuple(partial), final)


def test_a_change_splits_at_the_word_where_the_other_begins() -> None:
    line, reader = Timeline(), Reader()
    attribution = Attribution(line, itertools.count(1))
    reader.read(attribution.receive(segment(words(8))))
    assert reader.spoken() == [(None, "w0 w1 w2 w3 w4 w5 w6 w7")]
    line.borders, line.speakers, line.heard = [0, 2 * SECOND], [1, 2], 10 * SECOND
    reader.read(attribution.review())
    assert reader.spoken() == [(1, "w0 w1 w2 w3"), (2, "w4 w5 w6 w7")]
    reader.read(attribution.receive(segment(words(9), final=True)))
    assert reader.spoken()[1] == (2, "w4 w5 w6 w7 w8")
    assert all(s.final for s in reader.segments.values())
    line.frozen = 10 * SECOND
    reader.read(attribution.review())
    assert reader.frozen == {1, 2}
    assert attribution.review() == []


def test_words_nobody_listened_to_yet_split_nothing() -> None:
    line, reader = Timeline([0, 2 * SECOND], [1, 2], heard=2 * SECOND), Reader()
    attribution = Attribution(line, itertools.count(1))
    reader.read(attribution.receive(segment(words(8))))
    assert reader.spoken() == [(1, "w0 w1 w2 w3 w4 w5 w6 w7")]


def test_a_word_just_heard_may_still_be_somebody_elses() -> None:
    """The ear's last word on a border comes a little after it: until then nothing is split there."""
    said = words(5)
    line = Timeline([0, 2 * SECOND], [1, 2], heard=said[4].end + SECOND // 10)
    reader = Reader()
    attribution = Attribution(line, itertools.count(1))
    reader.read(attribution.receive(segment(said)))
    assert reader.spoken() == [(1, "w0 w1 w2 w3 w4")]
    line.heard += SECOND
    reader.read(attribution.review())
    assert reader.spoken() == [(1, "w0 w1 w2 w3"), (2, "w4")]


def test_what_is_frozen_is_not_split_by_later_evidence() -> None:
    said = words(8)
    line = Timeline([0, 2 * SECOND], [1, 2], heard=2 * SECOND, frozen=10 * SECOND)
    reader = Reader()
    attribution = Attribution(line, itertools.count(1))
    reader.read(attribution.receive(segment(said, final=True)))
    assert reader.frozen == {1}
    line.heard = 10 * SECOND
    reader.read(attribution.review())
    assert reader.spoken() == [(1, "w0 w1 w2 w3 w4 w5 w6 w7")]


def test_a_new_label_alone_is_told_without_the_words() -> None:
    line, reader = Timeline(heard=10 * SECOND), Reader()
    attribution = Attribution(line, itertools.count(1))
    reader.read(attribution.receive(segment(words(3))))
    line.speakers = [4]
    events = attribution.review()
    assert [type(e) for e in events] == [SpeakerRevised]
    reader.read(events)
    assert reader.spoken() == [(4, "w0 w1 w2")]


def test_a_breath_of_another_voice_splits_nothing() -> None:
    short = [Word("a", 0, 4000), Word("b", 4000, 5000), Word("c", 5000, 9000)]
    line = Timeline([0, 4000, 5000], [1, 2, 1], heard=SECOND * 3)
    reader = Reader()
    reader.read(Attribution(line, itertools.count(1)).receive(segment(short)))
    assert reader.spoken() == [(1, "a b c")]


def test_partial_words_stand_in_the_last_part() -> None:
    line, reader = Timeline([0, SECOND], [1, 2], heard=10 * SECOND), Reader()
    said = words(6)
    reader.read(Attribution(line, itertools.count(1)).receive(segment(said[:4], partial=said[4:])))
    parts = list(reader.segments.values())
    assert [p.partial for p in parts] == [(), said[4:]]
    assert [p.final for p in parts] == [True, False]


steps = st.lists(
    st.tuples(
        st.integers(0, 4),  # words committed
        st.integers(0, 3),  # seconds listened to further
        st.integers(0, 40),  # half seconds, where somebody else begins
        st.one_of(st.none(), st.integers(1, 3)),
        st.integers(0, 4),  # seconds frozen behind what is heard
    ),
    max_size=12,
)


@given(steps)
@settings(max_examples=200)
def test_whatever_is_learnt_when_words_stay_and_frozen_labels_stay(
    steps: list[tuple[int, int, int, int | None, int]],
) -> None:
    """P1 and P3 (Reader checks both, and that every word is in one segment)."""
    line, reader = Timeline(), Reader()
    attribution = Attribution(line, itertools.count(1))
    count = 0
    for more, heard, border, speaker, lag in steps:
        count += more
        line.heard += heard * SECOND
        start = border * SECOND // 2
        if start > line.frozen:  # what is frozen does not change
            at = bisect_right(line.borders, start)
            line.borders[at:] = [start]
            line.speakers[at:] = [speaker]
        line.frozen = max(line.frozen, line.heard - lag * SECOND)
        reader.read(attribution.review())
        if count:
            reader.read(attribution.receive(segment(words(count))))
    if count:
        reader.read(attribution.receive(segment(words(count), final=True)))
        line.heard = line.frozen = 10_000 * SECOND
        reader.read(attribution.review())
        assert reader.frozen == set(reader.segments)
        assert all(s.final for s in reader.segments.values())
    assert attribution.review() == []
    assert len(reader.words) == count


def test_numbers_only() -> None:
    numbered = Numbered(itertools.count(5), track=1, speaker=2)
    (event,) = numbered.receive(segment(words(2), final=True))
    assert isinstance(event, SegmentUpdated)
    assert (event.segment, event.track, event.speaker) == (5, 1, 2)
