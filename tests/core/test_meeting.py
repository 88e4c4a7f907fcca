"""Tracks on one clock, and voices told apart, over the same noisy truth as a single session."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contract import (
    FRAME,
    Audio,
    Capabilities,
    LocalSpeaker,
    RecognitionTask,
    Span,
    SpeakerTask,
    SpeakerWindow,
    Word,
)
from streaming.core.events import (
    Cover,
    Ended,
    Event,
    Flushed,
    Receipt,
    SegmentUpdated,
    SpeakerNamed,
    SpeakerRevised,
    Turn,
    TurnsSettled,
)
from streaming.core.meeting import Meeting
from streaming.core.settings import SessionSettings
from streaming.core.speakers import Linker, LinkerSettings

from .oracle import CAPABILITIES, SECOND, Oracle, Truth, truth

seeds = st.integers(0, 2**32)


@dataclass
class Reader:
    """What a client keeps of each track."""

    words: dict[int | None, list[Word]] = field(default_factory=dict)
    segments: dict[int, SegmentUpdated] = field(default_factory=dict)
    speakers: dict[int, int | None] = field(default_factory=dict)
    frozen: dict[int, int | None] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    flushed: list[str] = field(default_factory=list)
    ended: Ended | None = None

    def read(self, events: Sequence[Event]) -> None:
        for event in events:
            assert self.ended is None
            match event:
                case SegmentUpdated():
                    self._segment(event)
                case SpeakerRevised(segment, _, speaker, frozen):
                    assert segment not in self.frozen, "frozen labels stay"
                    self.speakers[segment] = speaker
                    if frozen:
                        self.frozen[segment] = speaker
                case TurnsSettled(turns):
                    assert turns, "no news are not told"
                    assert turns[0].start >= max((t.start for t in self.turns), default=0), "in order"
                    self.turns += turns
                case SpeakerNamed(speaker, name):
                    self.names[speaker] = name
                case Flushed(id):
                    self.flushed.append(id)
                case Ended():
                    self.ended = event
                case _:
                    raise AssertionError(event)

    def _segment(self, event: SegmentUpdated) -> None:
        known = self.words.setdefault(event.track, [])
        for index, word in enumerate(event.words, event.first_word):
            assert index <= len(known)
            if index == len(known):
                known.append(word)
            assert known[index] == word, "committed words changed"
        self.segments[event.segment] = event
        self.speakers[event.segment] = event.speaker


@dataclass
class Play:
    """Plays one truth a track; replies come after 0.1 to `slow` seconds, in any order among the tracks."""

    truths: Sequence[Truth]
    seed: int
    slow: float = 1.0
    linker: Linker | None = None
    turns: Sequence[tuple[int, int, int]] = ()
    """Who (an index) really speaks from where to where, if there are no tracks."""

    def run(self, *, flush_every: int = 0) -> Reader:
        rng = random.Random(self.seed)
        tracks = ["Ann", None, "Cem"][: len(self.truths)] if len(self.truths) > 1 else []
        self.meeting = meeting = Meeting(
            "m", SessionSettings(), CAPABILITIES, tracks=tracks, linker=self.linker
        )
        oracles = [Oracle(t, random.Random(self.seed + i), noise=0.0) for i, t in enumerate(self.truths)]
        reader = Reader()
        pending: list[tuple[float, RecognitionTask | SpeakerTask]] = []
        samples = max(t.samples for t in self.truths) // FRAME * FRAME
        padded = [Truth(t.words, samples) for t in self.truths]
        audio, voices = [t.audio() for t in padded], [t.voices() for t in padded]

        def deliver(until: float) -> None:
            while due := [p for p in pending if p[0] <= until]:
                item = min(due, key=lambda p: p[0])
                pending.remove(item)
                task = item[1]
                if isinstance(task, SpeakerTask):
                    meeting.receive_voices(task.id, self.listen(task))
                else:
                    which = int(task.session.rpartition(".")[2]) - 1 if tracks else 0
                    heard = oracles[which].hear(task)
                    assert heard is not None
                    meeting.receive_hypothesis(task.id, heard)
                drain(item[0])

        def drain(now: float) -> None:
            gone = set(meeting.tasks_to_cancel())
            pending[:] = [p for p in pending if p[1].id not in gone]
            wanted: list[RecognitionTask | SpeakerTask] = [
                *meeting.tasks_to_run(),
                *meeting.windows_to_hear(),
            ]
            for task in wanted:
                if task.id not in gone:
                    pending.append((now + rng.uniform(0.1, self.slow) * SECOND, task))
            reader.read(meeting.events_to_send())

        for at in range(0, samples, 5 * FRAME):
            end = min(at + 5 * FRAME, samples)
            frames = [a[at:end] for a in audio]
            meeting.receive_audio(frames, [v[at // FRAME : end // FRAME] for v in voices])
            drain(end)
            deliver(end)
            if flush_every and at // (5 * FRAME) % flush_every == 0:
                meeting.receive_flush(f"f{at}")
                drain(end)
        meeting.receive_end([np.zeros(0, np.float32)] * len(audio))
        drain(samples)
        while pending:
            deliver(1e12)
        return reader

    def listen(self, task: SpeakerTask) -> SpeakerWindow:
        """A perfect ear: everybody who speaks in the window, each with a vector of his own."""
        found: dict[int, list[Span]] = {}
        for who, start, end in self.turns:
            a, b = max(start, task.start), min(end, task.end)
            if b > a:
                found.setdefault(who, []).append((a, b))
        speakers = tuple(
            LocalSpeaker(tuple(spans), one_hot(who), sum(b - a for a, b in spans))
            for who, spans in found.items()
        )
        return SpeakerWindow(task.start, task.end, speakers)


def one_hot(index: int) -> Audio:
    vector = np.zeros(32, np.float32)
    vector[index] = 1.0
    return vector


def tiles(receipt: Receipt) -> None:
    at = 0
    for span in receipt.spans:
        assert span.start == at < span.end
        at = span.end
    assert at == receipt.samples


@given(seeds, st.integers(2, 3), st.sampled_from([0.0, 0.3]), st.sampled_from([0.3, 2.0]))
@settings(max_examples=25)
def test_tracks_in_any_interleaving_give_what_was_said(
    seed: int, count: int, pauses: float, slow: float
) -> None:
    truths = [truth(seed + i, 20, pauses=pauses) for i in range(count)]
    reader = Play(truths, seed, slow).run(flush_every=17)
    other = Play(truths, seed + 1, slow).run(flush_every=17)
    for index, said in enumerate(truths):
        assert [w.text for w in reader.words[index]] == [w.text for w in said.words]
        assert [w.text for w in other.words[index]] == [w.text for w in said.words]
    assert reader.ended is not None
    assert other.ended is not None
    assert all(s.final and s.speaker == (s.track or 0) + 1 for s in reader.segments.values())
    tiles(reader.ended.receipt)
    assert len(reader.ended.tracks) == count
    assert reader.ended.receipt.words == 20 * count
    for receipt in reader.ended.tracks:
        tiles(receipt)
    text = [s for s in reader.ended.receipt.spans if s.cover is Cover.TEXT]
    each = [s for r in reader.ended.tracks for s in r.spans if s.cover is Cover.TEXT]
    assert all(any(s.start <= t.start and t.end <= s.end for s in text) for t in each)
    assert reader.flushed == other.flushed
    assert len(reader.flushed) == len(set(reader.flushed))
    assert reader.names == ({1: "Ann"} if count == 2 else {1: "Ann", 3: "Cem"})


def conversation(seed: int, people: int) -> tuple[Truth, list[tuple[int, int, int]]]:
    """Turns of 4 to 9 words of changing people, without a pause between them; and who speaks when."""
    rng = random.Random(seed)
    said = truth(seed, 60, pauses=0.05, shortest=SECOND // 3)
    turns, at, who = [], 0, 0
    while at < len(said.words):
        length = rng.randint(4, 9)
        words = said.words[at : at + length]
        turns.append((who, words[0].start, words[-1].end))
        who = rng.choice([p for p in range(people) if p != who])
        at += length
    return said, turns


@given(seeds, st.integers(2, 4))
@settings(max_examples=15)
def test_words_are_attributed_to_who_says_them(seed: int, people: int) -> None:
    """With a perfect ear: P1 and P3, a segment's frozen label stays, and nearly every word is labelled right
    in the end (evidence of less than a second and a half at the very beginning may not be enough)."""
    said, turns = conversation(seed, people)
    play = Play([said], seed, 0.5, Linker(LinkerSettings(same=0.5)), turns)
    reader = play.run()
    assert [w.text for w in reader.words[None]] == [w.text for w in said.words]
    assert set(reader.frozen) == set(reader.segments)
    numbers: dict[int, int | None] = {}
    wrong = 0
    for segment in reader.segments.values():
        for word in segment.words:
            middle = (word.start + word.end) // 2
            who = next(who for who, start, end in turns if start <= middle < end)
            label = reader.frozen[segment.segment]
            if label is not None and who not in numbers and label not in numbers.values():
                numbers[who] = label
            wrong += label != numbers.get(who)
    assert wrong <= len(said.words) // 10, f"{wrong} of {len(said.words)} words"


@given(seeds, st.integers(2, 4), st.sampled_from([5.0, 30.0]))
@settings(max_examples=10, deadline=None)
def test_turns_are_told_when_they_are_settled_and_then_stay(seed: int, people: int, revise_s: float) -> None:
    """What is told piece by piece is what the linker says of the whole in the end."""
    said, turns = conversation(seed, people)
    linker = Linker(LinkerSettings(same=0.5, revise_s=revise_s, remember_s=1e6))
    play = Play([said], seed, 0.5, linker, turns)
    told = play.run().turns
    assert told
    for cell in range(0, said.samples, SECOND // 10):
        there = [turn.speaker for turn in told if turn.start <= cell < turn.end]
        assert len(there) == len(set(there)), "nobody is heard twice"
        whole = {turn.speaker for turn in linker.turns(0, said.samples) if turn.start <= cell < turn.end}
        assert set(there) == whole


def test_a_name_is_for_somebody() -> None:
    meeting = Meeting("m", SessionSettings(), CAPABILITIES, tracks=["Ann", None])
    meeting.rename(2, "Bo")
    assert meeting.events_to_send() == [SpeakerNamed(1, "Ann"), SpeakerNamed(2, "Bo")]
    for nobody in (0, 3):
        with pytest.raises(KeyError):
            meeting.rename(nobody, "X")
    with pytest.raises(KeyError):
        Meeting("m", SessionSettings(), CAPABILITIES).rename(1, "X")


def test_a_failing_ear_holds_nothing_up() -> None:
    """Without an answer to any window everything is said, and nobody is known."""
    said, turns = conversation(5, 2)
    play = Play([said], 5, 0.5, Linker(LinkerSettings()), turns)
    play.listen = lambda task: None  # type: ignore[assignment, return-value]
    reader = play.run()
    assert reader.ended is not None
    assert set(reader.frozen.values()) == {None}


@given(seeds)
@settings(max_examples=10)
def test_tags_of_the_model_are_the_turns_and_their_names_mean_nothing(seed: int) -> None:
    """A model that tells speakers apart: its tags go to the ear with their spans, and the same voices under
    other tags in every second reply are the same speakers of the meeting."""
    said, turns = conversation(seed, 2)
    steady, changing = tagged(said, turns, renumbered=False), tagged(said, turns, renumbered=True)
    assert steady == changing
    whose = [who_says(turns, word) for word in said.words]
    speakers = {who: Counter(s for s, w in zip(steady, whose, strict=True) if w == who) for who in (0, 1)}
    found = [counts.most_common(1)[0][0] for counts in speakers.values()]
    assert sorted(found, key=str) == [1, 2]
    right = sum(steady[i] == found[who] for i, who in enumerate(whose))
    assert right >= 0.85 * len(whose)


def who_says(turns: list[tuple[int, int, int]], word: Word) -> int:
    middle = (word.start + word.end) // 2
    return next((who for who, start, end in turns if start <= middle < end), 0)


def tagged(said: Truth, turns: list[tuple[int, int, int]], *, renumbered: bool) -> list[int | None]:
    """The speaker of every word of a meeting whose model tags them, by other names in every second reply."""

    class Tagging(Oracle):
        def hear(self, task: RecognitionTask):  # type: ignore[no-untyped-def]
            heard = super().hear(task)
            assert heard is not None
            swap = renumbered and len(self.tasks) % 2
            words = tuple(
                Word(w.text, w.start, w.end, w.space, w.confidence, tag=f"S{who_says(turns, w) ^ swap}")
                for w in heard.words
            )
            return type(heard)(words, heard.finish)

    capabilities = Capabilities("tags", "tags", max_window_s=28.0, speaker_tags=True)
    meeting = Meeting("m", SessionSettings(), capabilities, linker=Linker(LinkerSettings()))
    oracle = Tagging(said, random.Random(7), noise=0.0)
    audio, voices = said.audio(), said.voices()
    reader, asked = Reader(), 0

    def answer() -> None:
        nonlocal asked
        for _ in range(3):
            for task in meeting.tasks_to_run():
                meeting.receive_hypothesis(task.id, oracle.hear(task))
            for window in meeting.windows_to_hear():
                asked += 1
                assert window.tags
                meeting.receive_voices(window.id, heard_by(turns, window))
        reader.read(meeting.events_to_send())

    for at in range(0, len(voices), 5):
        some = voices[at : at + 5]
        meeting.receive_audio([audio[at * FRAME : (at + len(some)) * FRAME]], [some])
        answer()
    meeting.receive_end([audio[len(voices) * FRAME :]])
    answer()
    assert asked
    assert reader.ended is not None
    return [
        segment.speaker
        for segment in sorted(reader.segments.values(), key=lambda segment: segment.first_word)
        for _ in segment.words
    ]


def heard_by(turns: list[tuple[int, int, int]], window: SpeakerTask) -> SpeakerWindow:
    """An ear that takes the turns as given: each tag's voice is that of whom most of its spans are."""
    assert window.tags is not None
    people = []
    for spans in window.tags:
        said = {
            who: sum(
                max(0, min(b, end) - max(a, start)) for a, b in spans for w, start, end in turns if w == who
            )
            for who in (0, 1)
        }
        vector = sum((n * one_hot(who) for who, n in said.items()), np.zeros(32, np.float32))
        norm = float(np.linalg.norm(vector))
        unit = (vector / norm).astype(np.float32) if norm else None
        people.append(LocalSpeaker(spans, unit, sum(b - a for a, b in spans)))
    return SpeakerWindow(window.start, window.end, tuple(people))
