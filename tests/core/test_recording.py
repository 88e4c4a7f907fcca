"""Recordings: whole windows, pieces beside each other, and still one transcript in order."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract import Capabilities, Finish, Hypothesis, Priority, RecognitionTask
from streaming.core.events import Cover
from streaming.core.pieces import Pieces
from streaming.core.settings import SessionSettings

from .oracle import CAPABILITIES, SECOND, Oracle, Reader, Run, Truth, truth

seeds = st.integers(0, 2**32)


@dataclass
class Reading(Run):
    """A recording; replies come in any order, `delay` samples later at the most."""

    at_once: int = 1
    length: int = 10 * SECOND

    def begin(self, capabilities: Capabilities) -> Pieces:
        self.rng = random.Random(self.delay)
        return Pieces("s", self.settings, capabilities, at_once=self.at_once, length=self.length)

    def due(self, now: int) -> int:
        return now + self.rng.randint(0, self.delay)


def read(said: Truth, seed: int, **options: int) -> tuple[Reader, list[RecognitionTask]]:
    run = Reading(said, Oracle(said, random.Random(seed)), **options)  # type: ignore[arg-type]
    return run.play(random.Random(seed)), run.oracle.tasks


@given(
    seeds,
    st.integers(1, 80),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.booleans(),
    st.integers(1, 4),
    st.integers(0, 20 * SECOND),
)
def test_no_word_is_lost_doubled_or_out_of_order(
    seed: int, words: int, pauses: float, spaced: bool, at_once: int, delay: int
) -> None:
    said = truth(seed, words, pauses=pauses, spaced=spaced)
    reader, tasks = read(said, seed, at_once=at_once, delay=delay)
    assert [w.text for w in reader.words] == [w.text for w in said.words]
    assert all(s.final for s in reader.shown.values())
    assert reader.receipt is not None
    assert (reader.receipt.samples, reader.receipt.words) == (said.samples, words)
    assert [s.start for s in reader.receipt.spans[1:]] == [s.end for s in reader.receipt.spans[:-1]]
    assert reader.receipt.total(Cover.GAP) == 0
    assert all(task.priority is Priority.FINAL for task in tasks), "nothing is decoded to be shown early"
    assert len({task.id for task in tasks}) == len(tasks)


@given(seeds, st.integers(1, 3), st.integers(SECOND, 20 * SECOND))
def test_the_same_windows_however_fast_it_is_read(seed: int, at_once: int, delay: int) -> None:
    said = truth(seed, 100, pauses=0.2)
    slow, fast = (read(said, seed, at_once=at_once, delay=d) for d in (0, delay))
    windows = [sorted((t.start, t.end, t.prefix, t.context) for t in tasks) for _, tasks in (slow, fast)]
    assert windows[0] == windows[1]
    assert [s.words for s in slow[0].shown.values()] == [s.words for s in fast[0].shown.values()]


def test_windows_are_as_long_as_the_scheduler_allows() -> None:
    said = truth(1, 400, pauses=0.2)
    _, tasks = read(said, 1)
    lengths = sorted((t.end - t.start) / SECOND for t in tasks)
    assert all(length <= 24 for length in lengths)
    assert lengths[len(lengths) // 2] > 18


def test_pieces_are_read_beside_each_other_up_to_their_number() -> None:
    said = truth(3, 600, pauses=0.2)
    pieces = Pieces("s", SessionSettings(), CAPABILITIES, at_once=3)
    audio, voices = said.audio(), said.voices()
    asked: list[RecognitionTask] = []
    for at in range(0, len(voices), 50):
        pieces.receive_audio(audio[at * 320 : (at + 50) * 320], voices[at : at + 50])
        asked += pieces.tasks_to_run()
        if pieces.backlog > 30 * SECOND:
            break
    # Nothing was answered: of each piece one window is asked for, and reading stops behind the third.
    assert len(asked) == 3
    assert {task.session for task in asked} == {"s"}
    assert 150 <= pieces.received / SECOND < 160


def test_a_monologue_without_a_pause_is_not_read_without_end() -> None:
    said = truth(4, 1000, pauses=0.0)
    pieces = Pieces("s", SessionSettings(), CAPABILITIES, at_once=8)
    audio, voices = said.audio(), said.voices()
    for at in range(0, len(voices), 50):
        pieces.receive_audio(audio[at * 320 : (at + 50) * 320], voices[at : at + 50])
        if pieces.backlog > 30 * SECOND:
            break
    assert pieces.received / SECOND < 60 + 30 + 5


def test_nobody_flushes_a_recording() -> None:
    with pytest.raises(ValueError, match="not flushed"):
        Pieces("s", SessionSettings(), CAPABILITIES, at_once=1).receive_flush("x")


WHOLE = Capabilities("oracle", "oracle", max_window_s=5400.0)
LONG_WINDOWS = SessionSettings(window_s=5400.0)


def whole(said: Truth, deaf: Callable[[RecognitionTask], Hypothesis | None]) -> tuple[Reader, list[float]]:
    """Read in windows as long as the recording, by a model that is `deaf`; the windows' lengths, seconds."""
    oracle = Oracle(said, random.Random(5), deaf=deaf)
    reader = Reading(said, oracle, LONG_WINDOWS).play(capabilities=WHOLE)
    return reader, [(task.end - task.start) / SECOND for task in oracle.tasks]


def texts(reader: Reader) -> list[str]:
    return [word.text for word in reader.words]


def test_a_recording_that_fits_is_one_request() -> None:
    said = truth(7, 900, pauses=0.2)
    reader, windows = whole(said, lambda _: None)
    assert texts(reader) == [word.text for word in said.words]
    assert len(windows) == 1


@given(seeds, st.floats(0.3, 0.95))
def test_a_window_that_is_cut_off_is_taken_and_goes_on_behind(seed: int, share: float) -> None:
    """A budget that ends early, again and again: no success, no lost word, and no word said twice."""
    said = truth(seed, 500, pauses=0.2)

    def cut(task: RecognitionTask) -> Hypothesis | None:
        if task.end - task.start < 100 * SECOND:
            return None
        heard = [w for w in said.words if w.start >= task.start and w.end <= task.end]
        known = task.prefix[-1].end if task.prefix else 0
        kept = [w for w in heard[: int(len(heard) * share)] if w.start >= known]
        return Hypothesis(tuple(kept), Finish.LENGTH)

    reader, windows = whole(said, cut)
    assert texts(reader) == [word.text for word in said.words]
    assert not reader.gaps
    assert len(windows) > 1


def test_a_window_that_loops_is_cut_at_a_seam_before_the_ladder() -> None:
    said = truth(9, 700, pauses=0.2)

    def loops(task: RecognitionTask) -> Hypothesis | None:
        return Hypothesis((), Finish.LOOP) if task.end - task.start > 61 * SECOND else None

    reader, windows = whole(said, loops)
    assert texts(reader) == [word.text for word in said.words]
    assert not reader.gaps
    assert all(length <= 60 for length in windows[1::2]), "each long try is followed by a short one"


def test_a_minute_that_cannot_be_decoded_costs_that_minute_only() -> None:
    said = truth(11, 700, pauses=0.2)
    bad = range(100 * SECOND, 101 * SECOND)

    def fails(task: RecognitionTask) -> Hypothesis | None:
        inside = task.start < bad.stop and task.end > bad.start
        return Hypothesis((), Finish.LOOP) if inside else None

    reader, _ = whole(said, fails)
    assert {gap.cause for gap in reader.gaps} == {"loop"}
    first, last = reader.gaps[0].start, reader.gaps[-1].end
    assert first < bad.stop < last + 3 * SECOND
    assert last - first <= 60 * SECOND
    lost = {w.text for w in said.words} - set(texts(reader))
    assert all(first <= w.start < last for w in said.words if w.text in lost)


def test_what_the_engine_will_not_have_is_asked_for_in_shorter_windows() -> None:
    """It refuses what its memory cannot hold, and only it knows how much that is."""
    said = truth(13, 900, pauses=0.2)
    oracle = Oracle(said, random.Random(5))
    hear, asked = oracle.hear, list[float]()

    def refuses(task: RecognitionTask) -> Hypothesis | None:
        asked.append((task.end - task.start) / SECOND)
        return None if asked[-1] > 100 else hear(task)

    oracle.hear = refuses  # type: ignore[method-assign]
    run = Reading(said, oracle, LONG_WINDOWS)
    run.oracle.rng.random = lambda: 0.9  # type: ignore[method-assign]
    reader = run.play(capabilities=WHOLE)
    assert texts(reader) == [word.text for word in said.words]
    assert not reader.gaps
    assert sum(length > 100 for length in asked) <= 3, "it is asked for so much a few times only"
