"""A session whose process died goes on in another: nothing settled is decoded again, nothing else is lost."""

from __future__ import annotations

import random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.contract import FRAME, RecognitionTask, Word
from streaming.core.continuation import NOTHING, Continuation
from streaming.core.events import Cover, Covered, SegmentUpdated
from streaming.core.session import Session
from streaming.core.settings import SessionSettings

from .oracle import CAPABILITIES, SECOND, Oracle, Reader, truth


class Life:
    """One process: a session from its continuation until it is cut off, or to the end."""

    def __init__(self, oracle: Oracle, continues: Continuation, reader: Reader, early: int) -> None:
        clock = max(0, continues.clock - early * FRAME)
        self.session = Session("s", SessionSettings(), CAPABILITIES, continues=continues, clock=clock)
        self.oracle = oracle
        self.reader = reader
        self.pending: list[tuple[int, RecognitionTask]] = []
        self.delay = 4800

    def play(self, until: int | None) -> None:
        said = self.oracle.truth
        audio, voices = said.audio(), said.voices()
        last = len(voices) if until is None else min(until // FRAME, len(voices))
        for at in range(self.session.received // FRAME, last):
            self.session.receive_audio(audio[at * FRAME : (at + 1) * FRAME], voices[at : at + 1])
            self.drain((at + 1) * FRAME)
            self.deliver((at + 1) * FRAME)
        if until is None:
            self.session.receive_end(audio[len(voices) * FRAME :])
            self.drain(said.samples)
            while self.pending:
                self.deliver(1 << 60)

    def drain(self, now: int) -> None:
        gone = set(self.session.tasks_to_cancel())
        self.pending = [p for p in self.pending if p[1].id not in gone]
        self.pending += [(now + self.delay, t) for t in self.session.tasks_to_run() if t.id not in gone]
        self.reader.read(self.session.events_to_send(), now)

    def deliver(self, now: int) -> None:
        for due, task in list(self.pending):
            if due <= now:
                self.pending.remove((due, task))
                heard = self.oracle.hear(task)
                assert heard is not None
                self.session.receive_hypothesis(task.id, heard)
                self.drain(now)


def accounted(segments: list[SegmentUpdated], settled: int) -> tuple[Covered, ...]:
    """What became of [0, settled), from the segments that a client saw."""
    spans, at = [], 0
    for segment in segments:
        end = min(segment.end, settled)
        if not segment.words or end <= at:
            continue
        if segment.start > at:
            spans.append(Covered(at, segment.start, Cover.SILENCE))
        spans.append(Covered(max(at, segment.start), end, Cover.TEXT))
        at = end
    if settled > at:
        spans.append(Covered(at, settled, Cover.SILENCE))
    return tuple(spans)


@given(
    st.integers(0, 2**32),
    st.integers(1, 50),
    st.sampled_from([0.0, 0.2, 0.6]),
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=4).map(sorted),
    st.sampled_from([0, 1, 200]),
)
@example(seed=22, words=15, pauses=0.6, cuts=[0.1875], early=0)  # the first window began inside a known word
@settings(max_examples=80)
def test_killed_anywhere_it_says_what_was_said(
    seed: int, words: int, pauses: float, cuts: list[float], early: int
) -> None:
    """P1, P4, P5 and P6 over any number of deaths, with words and segments as the only memory; audio comes
    again from `early` frames before what is settled, as another track may need it."""
    said = truth(seed, words, pauses=pauses)
    oracle = Oracle(said, random.Random(seed), noise=0.0)
    known: list[Word] = []
    shown: list[SegmentUpdated] = []
    continues = NOTHING
    for cut in [*[int(c * said.samples) for c in cuts], None]:
        reader = Reader()
        life = Life(oracle, continues, reader, early)
        # A new process numbers from where the old one stopped; the reader here only checks from 0.
        base = continues.count
        reader.words = [Word("", -1, -1)] * base
        life.play(cut)
        known += reader.words[base:]
        shown += reader.shown.values()
        settled = life.session.settled
        assert settled >= continues.settled, "what is settled stays settled"
        assert all(w.end <= settled for w in known)
        kept = life.session.received - settled
        assert kept <= 4 * SECOND, "a client keeps little more than the delay of a word"
        continues = Continuation(settled, tuple(known), len(known), accounted(shown, settled))
    assert [w.text for w in known] == [w.text for w in said.words]
    assert reader.receipt is not None
    assert reader.receipt.words == len(said.words)
    at = 0
    for span in reader.receipt.spans:
        assert span.start == at < span.end
        at = span.end
    assert at == said.samples
    assert not reader.gaps


def test_a_word_at_the_seam_is_heard_whole_behind_words_that_are_known() -> None:
    """The first window begins before what is settled, and what is known of it is its forced prefix."""
    said = truth(3, 40, pauses=0.0)
    first = Life(Oracle(said, random.Random(3), noise=0.0), NOTHING, Reader(), 0)
    first.play(10 * SECOND)
    settled, known = first.session.settled, tuple(first.reader.words)
    second = Life(first.oracle, Continuation(settled, known, len(known)), Reader(), 0)
    second.reader.words = list(known)
    asked = len(first.oracle.tasks)
    second.play(12 * SECOND)
    task = first.oracle.tasks[asked]
    assert task.start <= settled - 2 * SECOND
    assert task.prefix == tuple(w for w in known if w.start + w.end >= 2 * task.start)
    assert task.prefix
