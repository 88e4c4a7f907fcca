"""Who is heard when: overlapping windows of local voices, and labelled evidence inside them, made into runs.

How many speak at a moment is what most windows say. Who they are is what the evidence around says: a moment
in which a voice is alone has the label of the evidence that covers it, any other the label that its voice has
in the nearest such moment. All times are frames of `FRAME` samples on the session's clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from engine.contract import FRAME, Span

Mask = npt.NDArray[np.bool_]

NOBODY = -1
UNKNOWN = 0
"""Somebody is heard, and it is not known who."""


@dataclass(frozen=True, slots=True)
class Run:
    """[start, end), in which the same one or two are heard."""

    start: int
    end: int
    first: int
    second: int
    """`NOBODY` where one speaks alone."""
    overlap: bool
    score: float
    """Mean similarity of what is heard to the first one's voice; NaN where it was not compared."""


@dataclass(frozen=True, slots=True, eq=False)
class Heard:
    """The local voices of one window: `active` is voices x frames, from frame `start`."""

    start: int
    active: Mask

    @property
    def end(self) -> int:
        return self.start + int(self.active.shape[1])

    def alone(self) -> Mask:
        """Voices x frames: where each is the only one."""
        alone: Mask = self.active & (self.active.sum(axis=0) == 1)
        return alone


@dataclass(frozen=True, slots=True, eq=False)
class Label:
    """One voice alone: where (`mask` from frame `start`), whose, for how much it counts, how like."""

    start: int
    mask: Mask
    speaker: int
    weight: float
    score: float


def frames(span: Span) -> tuple[int, int]:
    """The frames nearest to a span of samples."""
    return (span[0] + FRAME // 2) // FRAME, (span[1] + FRAME // 2) // FRAME


def mask(spans: Sequence[Span], start: int, end: int) -> Mask:
    """Frames [start, end) that lie in `spans` of samples."""
    made = np.zeros(max(end - start, 0), dtype=np.bool_)
    for span in spans:
        first, last = frames(span)
        made[max(first - start, 0) : max(last - start, 0)] = True
    return made


class Timeline:
    """Runs before `frozen` stay; those after it are made anew with each `label`."""

    def __init__(self, remember: int) -> None:
        """`remember`: frames behind `frozen` for which runs are kept."""
        self._remember = remember
        self._windows: list[Heard] = []
        self._old: list[Run] = []
        self._new: list[Run] = []
        self.frozen = 0
        self.heard = 0

    @property
    def windows(self) -> int:
        """Windows that still speak of something after `frozen`."""
        return len(self._windows)

    @property
    def oldest(self) -> int:
        """Where the first of them to end does so."""
        return min([window.end for window in self._windows], default=self.heard)

    @property
    def base(self) -> int:
        """First frame that a window still speaks of."""
        return min([window.start for window in self._windows], default=self.heard)

    def add(self, window: Heard) -> None:
        """One window more; one that ends before `frozen` changes nothing."""
        if window.end > self.frozen:
            self._windows.append(window)
        self.heard = max(self.heard, window.end)

    def label(self, labels: Sequence[Label]) -> None:
        """Make the runs after `frozen` anew."""
        base, speakers = self.base, sorted({UNKNOWN, *(label.speaker for label in labels)})
        primary, score = self._primary(labels, speakers, base)
        length = len(primary)
        votes = np.zeros((len(speakers), length), dtype=np.float32)
        voices, windows = np.zeros(length), np.zeros(length)
        for window in self._windows:
            at = slice(window.start - base, window.end - base)
            windows[at] += 1
            voices[at] += window.active.sum(axis=0)
            for active, alone in zip(window.active, window.alone(), strict=True):
                moments = np.flatnonzero(active)
                whose = _nearest(moments, np.flatnonzero(alone & (primary[at] >= 0)), primary[at])
                votes[whose, moments + at.start] += 1
        count = np.floor(voices / np.maximum(windows, 1) + 0.5).astype(int)
        self._new = list(_runs(base, self.frozen, votes, count, score, np.array(speakers)))

    def _primary(
        self, labels: Sequence[Label], speakers: Sequence[int], base: int
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float32]]:
        """Per frame from `base`: the row of the speaker whom the labels name, -1 for none; and each speaker's
        score there (speakers x frames, NaN for none)."""
        length = max(self.heard - base, 0)
        weight = np.zeros((len(speakers), length), dtype=np.float32)
        score = np.zeros_like(weight)
        for label in labels:
            row = speakers.index(label.speaker)
            lost = max(base - label.start, 0)
            at = slice(label.start + lost - base, label.start - base + len(label.mask))
            here = label.mask[lost:] * np.float32(label.weight)
            weight[row, at] += here[: len(weight[row, at])]
            score[row, at] += here[: len(weight[row, at])] * np.float32(label.score)
        with np.errstate(invalid="ignore"):
            score /= weight
        return np.where(weight.max(axis=0) > 0, weight.argmax(axis=0), -1), score

    def freeze(self, before: int) -> None:
        """Keep the runs before frame `before` as they are."""
        if before <= self.frozen:
            return
        self._old += [replace(run, end=min(run.end, before)) for run in self._new if run.start < before]
        self._new = [replace(run, start=max(run.start, before)) for run in self._new if run.end > before]
        self.frozen = before
        self._windows = [window for window in self._windows if window.end > before]
        del self._old[: bisect_right(self._old, before - self._remember, key=_end)]

    def runs(self, start: int, end: int) -> Iterator[Run]:
        """The runs inside [start, end), clipped to it, in order."""
        for runs in (self._old, self._new):
            for index in range(bisect_right(runs, start, key=_end), len(runs)):
                run = runs[index]
                if run.start >= end:
                    break
                yield replace(run, start=max(run.start, start), end=min(run.end, end))


def _end(run: Run) -> int:
    return run.end


def _nearest(
    moments: npt.NDArray[np.intp], known: npt.NDArray[np.intp], rows: npt.NDArray[np.intp]
) -> npt.NDArray[np.intp]:
    """For each moment the row of the nearest known one, the earlier of two; row 0 where none is known."""
    if not len(known):
        return np.zeros(len(moments), dtype=np.intp)
    after = np.minimum(np.searchsorted(known, moments), len(known) - 1)
    before = np.maximum(after - 1, 0)
    earlier = np.abs(known[before] - moments) <= np.abs(known[after] - moments)
    found: npt.NDArray[np.intp] = rows[np.where(earlier, known[before], known[after])]
    return found


def _runs(
    base: int,
    frozen: int,
    votes: npt.NDArray[np.float32],
    count: npt.NDArray[np.intp],
    score: npt.NDArray[np.float32],
    speakers: npt.NDArray[np.intp],
) -> Iterator[Run]:
    """Stretches with the same speakers, after `frozen`."""
    moments = np.arange(votes.shape[1])
    votes[0] *= 0.99  # of two voices heard as often, the one that is known
    first = votes.argmax(axis=0)
    rest = votes.copy()
    rest[first, moments] = 0
    rest[0] = 0
    second = np.where((count > 1) & (rest.max(axis=0) > 0), rest.argmax(axis=0), -1)
    for speaker in {*first[(count > 1) & (second < 0)].tolist()} - {0}:
        # Heard under another all the time, a voice has no vector. Most likely it is who spoke last, or next.
        under = np.flatnonzero((count > 1) & (second < 0) & (first == speaker))
        second[under] = _nearest(under, np.flatnonzero((count > 0) & (first > 0) & (first != speaker)), first)
    second[second == 0] = -1
    state = np.stack([np.where(count > 0, first, -1), second, count > 1])
    skip = max(frozen - base, 0)
    if state.shape[1] <= skip:
        return
    edges = np.flatnonzero((state[:, skip + 1 :] != state[:, skip:-1]).any(axis=0)) + skip + 1
    for start, end in zip([skip, *edges], [*edges, state.shape[1]], strict=True):
        one, other, overlap = (int(v) for v in state[:, start])
        if one >= 0:
            sure = score[one, start:end]
            sure = sure[~np.isnan(sure)]
            yield Run(
                start=base + int(start),
                end=base + int(end),
                first=int(speakers[one]),
                second=int(speakers[other]) if other >= 0 else NOBODY,
                overlap=bool(overlap),
                score=float(sure.mean()) if len(sure) else float("nan"),
            )
