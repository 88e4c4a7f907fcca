"""A compacted log: whoever reads it, however slowly and however often cut off, ends where all others end."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from clients.captions import Captions
from streaming.kept.log import FLUSHES, Cursor, Log, Said, State
from streaming.wire.messages import Ended, Error, Flushed, Gap, Named, Segment, Speaker, Word
from tests.clients.build import receipt


def segment(id: int, rev: int, first: int, end: int, *, final: bool = True) -> Segment:
    """Words `first` to `end` of the transcript, each named by its index."""
    words = tuple(Word(str(index), index, index + 1) for index in range(first, end))
    text = " ".join(word.text for word in words)
    return Segment(0, id, rev, first, first, end, None, text, words, "" if final else " …", final)


def taken(log: Log, after: int = 0) -> list[Said]:
    cursor = Cursor(log, after)
    messages = []
    while (message := cursor.take()) is not None:
        messages.append(message)
    return messages


def test_a_reader_gets_the_newest_state_and_the_order_of_the_last_changes() -> None:
    log = Log()
    for message in (
        segment(1, 1, 0, 1, final=False),
        Flushed(0, "a", 1),
        segment(1, 2, 0, 2),
        Named(0, 1, "Ada"),
        segment(2, 1, 2, 3),
        Named(0, 1, "Bea"),
    ):
        log.put(message)
    assert [(type(m).__name__, m.seq) for m in taken(log)] == [
        ("Flushed", 2),
        ("Segment", 3),
        ("Segment", 5),
        ("Named", 6),
    ]
    assert taken(log, 5) == [Named(6, 1, "Bea")]
    assert taken(log, 99) == []


def test_news_of_a_speaker_is_small_for_those_who_have_the_words_and_no_news_to_others() -> None:
    log = Log()
    log.put(segment(1, 1, 0, 2))
    slow = Cursor(log)
    log.put(Named(0, 7, "Ada"))
    log.put(Speaker(0, 1, 2, 7, True, score=0.5))
    assert taken(log, 2) == [Speaker(3, 1, 2, 7, True, "Ada", 0.5)]
    known = replace(segment(1, 2, 0, 2), seq=1, speaker=7, name="Ada", frozen=True)
    assert taken(log) == [known, Named(2, 7, "Ada")]
    # It began before the news came, and cannot tell that it need not be told.
    assert [slow.take() for _ in range(4)] == [*taken(log), *taken(log, 2), None]


def test_words_never_come_after_later_ones() -> None:
    log = Log()
    for message in (segment(1, 1, 0, 6), segment(2, 1, 6, 8), replace(segment(9, 1, 0, 3), track=1)):
        log.put(message)
    for message in (segment(1, 3, 0, 4), segment(3, 1, 4, 5), segment(4, 1, 5, 6)):
        log.put(message)
    got = [(m.id, m.first_word, len(m.words)) for m in taken(log) if isinstance(m, Segment)]
    assert got == [(9, 0, 3), (1, 0, 4), (3, 4, 1), (4, 5, 1), (2, 6, 2)]
    # Who had read everything is shown what moved once more, with the revision that it knows.
    assert [(m.id, m.rev) for m in taken(log, 3) if isinstance(m, Segment)][-1] == (2, 1)


def test_a_frozen_speaker_stays_frozen_when_words_follow() -> None:
    log = Log()
    log.put(segment(1, 1, 0, 2, final=False))
    log.put(Speaker(0, 1, 2, 1, frozen=True))
    log.put(replace(segment(1, 3, 0, 3), speaker=1))
    (state,) = taken(log)
    assert isinstance(state, Segment)
    assert (state.rev, state.frozen) == (3, True)


def test_the_receipt_and_the_error_stay_last() -> None:
    log = Log()
    log.put(segment(1, 1, 0, 2))
    log.put(Ended(0, receipt(800, 2)))
    log.put(Error(0, "restarting", "why"))
    log.put(Named(0, 1, "Ada"))
    assert [type(m).__name__ for m in taken(log)] == ["Segment", "Named", "Ended", "Error"]
    assert log.receipt == receipt(800, 2)


def test_answers_to_flushes_are_kept_but_not_without_end() -> None:
    log = Log()
    for number in range(FLUSHES + 10):
        log.put(Flushed(0, str(number), number))
    log.put(Flushed(0, str(FLUSHES), 7))
    assert len(log) == FLUSHES
    got = [m.id for m in taken(log) if isinstance(m, Flushed)]
    assert (got[0], got[-1]) == ("10", str(FLUSHES))


def test_what_changes_a_thousand_times_takes_no_more_room() -> None:
    log = Log()
    for rev in range(1, 5000):
        log.put(segment(1, rev, 0, 3, final=False))
        log.put(Named(0, 1, str(rev)))
    assert len(log) == 2
    assert len(log._order) < 100
    assert Cursor(log).behind(10) == 2


def test_eight_hours_stay_small() -> None:
    log = Log()
    words = 25
    for number in range(72_000 // words):  # 8 h at 150 words a minute
        log.put(segment(number, 1, number * words, (number + 1) * words))
        log.put(Speaker(0, number, 2, 1, frozen=True))
    parts = (log._states, log._numbers, log._order, *log._states.values(), *log._states, *log._order)
    assert sum(map(sys.getsizeof, parts)) < 5 << 20


@dataclass
class Meeting:
    """People talking on two tracks, as the core tells of it: puts that belong together come together."""

    log: Log
    tracks: dict[int, list[tuple[int, int, int, int]]] = field(default_factory=lambda: {0: [], 1: []})
    """Of each track its segments: id, rev, first word, end."""
    frozen: set[int] = field(default_factory=set)
    ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    open: dict[int, bool] = field(default_factory=lambda: {0: False, 1: False})

    def __post_init__(self) -> None:
        for track, number in itertools.product((0, 1), (3, 0, 2, 0, 3, 0)):
            self.speak(track, number)

    def put(self, track: int, part: tuple[int, int, int, int], *, final: bool = True) -> None:
        self.log.put(replace(segment(*part, final=final), track=track))

    def speak(self, track: int, number: int) -> None:
        """More words, or a segment becomes final."""
        parts = self.tracks[track]
        if not self.open[track]:
            end = parts[-1][3] if parts else 0
            parts.append((next(self.ids), 1, end, end + number))
            self.open[track] = True
        else:
            id, rev, first, end = parts[-1]
            parts[-1] = (id, rev + 1, first, end + number)
            self.open[track] = number > 0
        self.put(track, parts[-1], final=not self.open[track])

    def split(self, track: int, number: int) -> None:
        parts = self.tracks[track]
        for index in range(len(parts) - self.open[track] - 1, -1, -1):
            id, rev, first, end = parts[index]
            if end - first > 1 and id not in self.frozen and (number := number - 1) < 0:
                parts[index : index + 1] = [(id, rev + 1, first, end - 1), (next(self.ids), 1, end - 1, end)]
                self.put(track, parts[index])
                self.put(track, parts[index + 1])
                return

    def revise(self, track: int, number: int) -> None:
        parts = self.tracks[track]
        if not parts:
            return
        index = number % len(parts)
        id, rev, first, end = parts[index]
        if id in self.frozen or (self.open[track] and index == len(parts) - 1):
            return
        parts[index] = (id, rev + 1, first, end)
        if number == 3:
            self.frozen.add(id)
        self.log.put(Speaker(0, id, rev + 1, number + 1, id in self.frozen))

    def others(self, track: int, number: int) -> None:
        self.log.put(
            (Named(0, number + 1, f"n{track}"), Gap(0, 1, 2, "loop"), Flushed(0, f"f{track}", 1))[number % 3]
        )


Act = Callable[[Meeting, int, int], None]
Step = tuple[Act, int, int]

ACTS: tuple[Act, ...] = (
    Meeting.speak,
    Meeting.speak,
    Meeting.split,
    Meeting.revise,
    Meeting.others,
)

acts = st.tuples(st.sampled_from(ACTS), st.integers(0, 1), st.integers(0, 3))


@dataclass
class Reader:
    log: Log
    captions: Captions = field(default_factory=Captions)

    def __post_init__(self) -> None:
        self.cursor = Cursor(self.log)
        self.words: list[Word] = []

    def read(self, most: int) -> None:
        for _ in range(most):
            if (message := self.cursor.take()) is None:
                break
            self.captions.receive(message)
            words = list(self.captions.transcript)
            assert words[: len(self.words)] == self.words
            self.words = words

    def come_back(self) -> None:
        """With another connection."""
        self.cursor = Cursor(self.log, self.captions.seq)


def shown(segments: list[Segment]) -> list[Segment]:
    return sorted((replace(s, seq=0, frozen=UNSET) for s in segments), key=lambda s: s.id)


@settings(max_examples=200)
@given(st.lists(st.tuples(acts, st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)))), max_size=40))
def test_every_reader_ends_with_the_same(steps: list[tuple[Step, list[tuple[int, int]]]]) -> None:
    log = Log()
    meeting, readers = Meeting(log), [Reader(log) for _ in range(3)]
    for (act, track, number), reads in steps:
        act(meeting, track, number)
        for who, most in reads:
            if who == 3:
                readers[most % 3].come_back()
            else:
                readers[who].read(most)
    readers.append(Reader(log))
    for reader in readers:
        reader.read(1 << 20)
        assert reader.captions.faults == []
        assert reader.captions.revised == 0
        assert shown(reader.captions.ordered()) == shown(log.segments())
        assert reader.captions.frozen == meeting.frozen
        assert len(reader.captions.gaps) == len(log.gaps)
    assert {(s.id, s.rev, s.first_word, s.first_word + len(s.words)) for s in log.segments()} == {
        part for parts in meeting.tracks.values() for part in parts
    }
    assert len(log._order) <= 2 * len(log) + 64


@given(st.lists(acts, max_size=40), st.integers(0, 40))
def test_a_log_restored_from_what_was_told_goes_on_as_the_log_did(steps: list[Step], cut: int) -> None:
    told: dict[str, State] = {}

    def on_put(key: str, seq: int, state: State) -> None:
        assert state.seq == seq
        told[key] = state

    log = Log(on_put)
    meeting, reader = Meeting(log), Reader(log)
    for act, track, number in steps[:cut]:
        act(meeting, track, number)
    reader.read(5)
    restored = Log()
    restored.restore(sorted(told.values(), key=lambda state: state.seq))
    assert restored.seq == log.seq
    assert taken(restored) == taken(log)
    reader.log = meeting.log = restored
    reader.come_back()
    for act, track, number in steps[cut:]:
        act(meeting, track, number)
    reader.read(1 << 20)
    assert reader.captions.faults == []
    assert shown(reader.captions.ordered()) == shown(restored.segments())
