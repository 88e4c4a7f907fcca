"""Word times: monotone, inside the window, off silence."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.align import _cheapest, timed_words, token_begins, token_frames
from engine.contract import FRAME, Audio
from engine.spread import spread_frames
from engine.units import Unit


def hum(*parts: tuple[float, float]) -> Audio:
    """Seconds and loudness, one after the other."""
    noise = np.random.default_rng(3)
    return np.concatenate([noise.normal(0, level, int(s * 16_000)) for s, level in parts]).astype(np.float32)


def words(*texts: str) -> list[Unit]:
    return [Unit(text, True, float(i), i + 1.0) for i, text in enumerate(texts)]


def test_token_times_are_where_the_path_first_arrives() -> None:
    path = [(0, 0), (0, 1), (1, 2), (1, 3), (2, 5)]
    assert token_frames(path, 2).tolist() == [0, 2, 5]
    assert token_frames([(0, 1), (3, 9)], 3).tolist() == [1, 1 + 8 / 3, 1 + 16 / 3, 9]


def test_the_first_word_does_not_reach_back_over_silence_nor_the_last_over_a_pause() -> None:
    audio = hum((1.0, 1e-4), (0.5, 0.1), (1.0, 1e-4), (0.5, 0.1), (0.5, 1e-4))
    frames = np.array([0.0, 125.0, 175.0])
    first, second = timed_words(words("one", "two"), frames, [0.9, 0.8], audio, (0, len(audio)))
    assert (first.start, first.end) == (16_000, 24_000)
    assert (second.start, second.end) == (40_000, 48_000)
    assert first.confidence is not None
    assert not first.estimated


def test_words_past_the_end_of_the_audio_are_not_heard() -> None:
    audio = hum((1.0, 0.1))
    frames = np.array([0.0, 30.0, 49.0, 49.0])
    found = timed_words(words("it", "was", "wisdom"), frames, [1.0, 1.0, 1.0], audio, (0, len(audio)))
    assert [word.text for word in found] == ["it", "was"]


def test_without_an_alignment_words_are_spread_over_what_is_audible() -> None:
    audio = hum((1.0, 1e-4), (1.0, 0.1), (1.0, 1e-4))
    units = words("one", "two")
    found = timed_words(units, spread_frames(audio, 0, units, 2), (), audio, (0, len(audio)))
    assert all(word.estimated and word.confidence is None for word in found)
    assert 16_000 <= found[0].start < found[0].end <= found[1].start < found[1].end <= 32_000


@given(
    st.lists(st.floats(0, 80), min_size=2, max_size=12),
    st.integers(0, 20_000),
    st.integers(0, 40),
    st.booleans(),
)
def test_times_are_ordered_and_inside_the_window(
    raw: list[float], offset: int, prefix: int, silent: bool
) -> None:
    audio = hum((1.0, 0.0 if silent else 0.1))
    window = (offset + prefix * FRAME, offset + len(audio))
    units = words(*("w" * len(raw[1:])))
    found = timed_words(units, np.sort(np.array(raw)), [0.5] * len(units), audio, window)
    edge = window[0]
    for word in found:
        assert edge <= word.start <= word.end <= window[1]
        edge = word.end


def slow_path(cost: npt.NDArray[np.float64]) -> float:
    """Dynamic time warping cell by cell: the least cost."""
    rows, columns = cost.shape
    total = np.full((rows + 1, columns + 1), np.inf)
    total[0, 0] = 0.0
    for row in range(rows):
        for column in range(columns):
            before = min(total[row, column], total[row, column + 1], total[row + 1, column])
            total[row + 1, column + 1] = cost[row, column] + before
    return float(total[-1, -1])


def cost_of(begins: npt.NDArray[np.float64], cost: npt.NDArray[np.float64]) -> float:
    """Of the path that enters each row there and leaves it where the next is entered, or one before."""
    best = 0.0
    ends = [*begins[1:].astype(int), cost.shape[1] - 1]
    for row, (start, end) in enumerate(zip(begins.astype(int), ends, strict=True)):
        last = row == len(begins) - 1
        choices = [cost[row, start : end + 1].sum()]
        if not last and end > start:
            choices.append(cost[row, start:end].sum())
        best += min(choices)
    return best


@given(st.integers(1, 8), st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_the_cheapest_path_is_that_of_the_slow_way(rows: int, columns: int, seed: int) -> None:
    cost = np.random.default_rng(seed).normal(size=(rows, columns))
    least = slow_path(cost)
    begins = _cheapest(cost)
    assert begins[0] == 0
    assert np.all(np.diff(begins) >= 0)
    assert cost_of(begins, cost) == pytest.approx(least)


def test_tokens_begin_where_they_were_heard() -> None:
    attention = np.full((2, 4, 100), 0.001, np.float32)
    for row, (start, end) in enumerate(pairwise((0, 20, 35, 60, 80))):
        attention[:, row, start:end] = 1.0
    begins = token_begins(attention, 80)
    assert np.abs(begins - [0, 20, 35, 60]).max() <= 4
    assert token_begins(attention[:, :1], 80).tolist() == [0.0]
    assert np.isfinite(token_begins(attention, 0)).all()
