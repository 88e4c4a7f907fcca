"""Word times from cross-attention, made fit for a transcript: monotone, inside the window, off silence.

PURE. Frames are 20 ms encoder positions relative to the window; the answers are absolute samples.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .contract import FRAME, Audio, Word
from .units import Unit

_MIN_WORD = FRAME
PAUSE_FRAMES = 6
"""A longer gap than this (0.12 s) is not inside a word."""
_SOUND = re.compile(rb"\x01(?:\x00{0,%d}\x01)*" % (PAUSE_FRAMES - 1))
"""One stretch of audible frames, of which each is a byte."""
_RANGE_DB = 35.0
"""This far below the window's loud parts nothing is spoken."""
_ABOVE_FLOOR_DB = 6.0
_HEADROOM_DB = 15.0
"""Speech without pauses has a high floor; nothing this near its peaks counts as quiet."""
_SILENCE = 1e-10
_MEDIAN = 7
"""Frames whose median a frame's attention is."""

Times = npt.NDArray[np.float64]


def token_frames(path: Sequence[tuple[int, int]], tokens: int) -> Times:
    """Frame at which each of `tokens` tokens begins, plus where the last one ends: `tokens` + 1 numbers.

    `path` is the (token, frame) path of the alignment; a token begins where the path first reaches it.
    """
    begins = np.full(tokens + 1, np.nan)
    for token, frame in path:
        if token <= tokens and np.isnan(begins[token]):
            begins[token] = frame
    known = np.flatnonzero(~np.isnan(begins))
    if len(known) == 0:
        return np.zeros(tokens + 1)
    filled = np.interp(np.arange(tokens + 1), known, begins[known])
    return np.maximum.accumulate(filled)


def token_begins(attention: npt.NDArray[np.float32], frames: int) -> Times:
    """Frame at which each token begins, from where it was heard.

    `attention` (heads, rows, all frames) has a row a token; audio ends at `frames`. Each row is compared with
    the others, smoothed and averaged over the heads; then the cheapest path through them that only goes
    forward is found (dynamic time warping). The answer has a number a row.
    """
    heard = attention[:, :, : max(frames, 1)].astype(np.float64)
    heard /= np.maximum(heard.sum(axis=-1, keepdims=True), 1e-12)
    deviation = np.maximum(heard.std(axis=1, keepdims=True), 1e-12)
    heard = (heard - heard.mean(axis=1, keepdims=True)) / deviation
    return _cheapest(-_smooth(heard).mean(axis=0))


def _smooth(rows: Times) -> Times:
    """The median of each value and its neighbours, `_MEDIAN` in all; edges mirrored."""
    half = _MEDIAN // 2
    if rows.shape[-1] <= half:
        return rows
    padded = np.pad(rows, ((0, 0), (0, 0), (half, half)), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, _MEDIAN, axis=-1)
    # The middle one is all that is wanted, not the order.
    middle: Times = np.partition(windows, half, axis=-1)[..., half]
    return middle


def _cheapest(cost: Times) -> Times:
    """Column at which the cheapest path from the first to the last cell enters each row.

    A row is one vector operation: the cheapest way to a cell is the cheapest entry before it, plus what the
    row costs from there on.
    """
    rows, columns = cost.shape
    total = np.cumsum(cost, axis=1)
    entries = np.empty_like(cost)
    reached = np.empty_like(cost)
    entries[0] = np.inf
    entries[0, 0] = 0.0
    reached[0] = total[0]
    for row in range(1, rows):
        entries[row] = reached[row - 1]
        entries[row, 1:] = np.minimum(reached[row - 1, 1:], reached[row - 1, :-1]) - total[row, :-1]
        reached[row] = total[row] + np.minimum.accumulate(entries[row])
    begins = np.zeros(rows)
    column = columns - 1
    for row in range(rows - 1, 0, -1):
        column = int(np.argmin(entries[row, : column + 1]))
        begins[row] = column
        if column and reached[row - 1, column - 1] < reached[row - 1, column]:
            column -= 1
    return begins


def timed_words(
    units: Sequence[Unit],
    frames: Times,
    probabilities: Sequence[float],
    audio: Audio,
    window: tuple[int, int],
) -> list[Word]:
    """Words of `units` with absolute times.

    `frames` has one more entry than there are tokens, `probabilities` one a token (or none at all: no
    confidence, times marked as estimated). `window` is the absolute span that the words must stay in;
    `audio` begins with it or before it and ends with it.
    """
    offset = window[1] - len(audio)
    positions = np.arange(len(frames))
    starts = np.interp([unit.start for unit in units], positions, frames) * FRAME + offset
    ends = np.interp([unit.end for unit in units], positions, frames) * FRAME + offset
    audible = audible_frames(audio).tobytes()
    words: list[Word] = []
    floor = window[0]
    for unit, start, end in zip(units, starts.tolist(), ends.tolist(), strict=True):
        low, high = _trim(audible, start - offset, end - offset)
        start_at = min(max(int(low) + offset, floor), window[1])
        end_at = min(max(int(high) + offset, start_at), window[1])
        floor = max(floor, start_at)
        confidence = _confidence(probabilities, unit) if probabilities else None
        words.append(Word(unit.text, start_at, end_at, unit.space, confidence, estimated=not probabilities))
    return _with_width(_heard(words, window[1]), window)


def _heard(words: list[Word], end: int) -> list[Word]:
    """Drop words at the end that lie on no audio: the model finished the sentence for the speaker."""
    while words and words[-1].start >= end - _MIN_WORD:
        words.pop()
    return words


def _with_width(words: list[Word], window: tuple[int, int]) -> list[Word]:
    """Give every word some extent without overlaps, where the window has room for it."""
    out: list[Word] = []
    for index, word in enumerate(words):
        following = words[index + 1].start if index + 1 < len(words) else window[1]
        start = max(word.start, out[-1].end) if out else word.start
        end = max(min(word.end, max(following, start)), start)
        if end - start < _MIN_WORD:
            end = min(start + _MIN_WORD, window[1])
        if (start, end) != (word.start, word.end):
            word = Word(word.text, start, end, word.space, word.confidence, word.estimated, word.tag)
        out.append(word)
    return out


def _trim(audible: bytes, start: float, end: float) -> tuple[float, float]:
    """The longest audible stretch of a word, bridging short gaps; a word that is all silence stays. `audible`
    has a byte for each frame.

    Alignment leaves no gaps: it stretches the first word back to the window's beginning, and the word
    before a pause over the pause.
    """
    low, high = int(start // FRAME), int(-(-end // FRAME))
    longest = max(_SOUND.finditer(audible, low, high), key=_frames_of, default=None)
    if longest is None:
        return start, end
    return max(start, float(longest.start() * FRAME)), min(end, float(longest.end() * FRAME))


def _frames_of(stretch: re.Match[bytes]) -> int:
    return stretch.group().count(1)


def audible_frames(audio: Audio) -> npt.NDArray[np.bool_]:
    """Per frame of 20 ms: whether it stands out from the window's noise and is not far below its peaks."""
    count = -(-len(audio) // FRAME)
    if count == 0:
        return np.zeros(0, np.bool_)
    whole = audio[: len(audio) // FRAME * FRAME].reshape(-1, FRAME)
    rest = audio[whole.size :]
    energy = np.empty(count, np.float32)
    np.einsum("ij,ij->i", whole, whole, out=energy[: len(whole)])
    if len(rest):
        energy[-1] = rest @ rest
    level = 10.0 * np.log10(energy / np.float32(FRAME) + _SILENCE)
    ordered = np.sort(level)  # ten times as fast as numpy's percentiles of as few values
    floor, loud = (_quantile(ordered, share) for share in (0.10, 0.95))
    return np.asarray(level > max(loud - _RANGE_DB, min(floor + _ABOVE_FLOOR_DB, loud - _HEADROOM_DB)))


def _quantile(ordered: npt.NDArray[np.float32], share: float) -> float:
    """Between two ranks on the line from one to the other."""
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (ordered[high] - ordered[low]) * (at - low))


def _confidence(probabilities: Sequence[float], unit: Unit) -> float:
    """Geometric mean over the unit's tokens: one doubtful piece makes the word doubtful."""
    low = int(unit.start)
    high = max(int(np.ceil(unit.end)), low + 1)
    part = np.maximum(np.asarray(probabilities[low:high], np.float64), 1e-6)
    return float(np.exp(np.log(part).mean())) if len(part) else 0.0
