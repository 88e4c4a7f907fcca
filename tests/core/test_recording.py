"""Recordings: whole windows, pieces beside each other, and still one transcript in order."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract import Capabilities, Priority, RecognitionTask
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
