"""Who speaks: the local voices of overlapping windows linked to the people of a meeting.

`voices` tells which vectors are one person's, `timeline` who is heard when. Labels of the last `revise_s` are
made anew with each window; those before are frozen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.contract import FRAME, LocalSpeaker, SpeakerWindow, Vector

from .clustering import assign
from .events import Turn
from .spans import to_samples
from .timeline import NOBODY, UNKNOWN, Heard, Label, Run, Timeline, mask
from .voices import Evidence, KnownVoice, Voices, VoiceSettings

MOST_WINDOWS = 96
"""Above this the oldest is frozen, so that a source of very many windows cannot grow without bound."""


@dataclass(frozen=True, slots=True)
class LinkerSettings:
    """Similarities are mean dot products of unit vectors; seconds where not said otherwise."""

    same: float = 0.45
    """From here on two clusters are one voice; see `SpeakerTraits.same`."""
    lend_below: float = 0.08
    """So much less than `same` is enough for a voice without evidence enough of its own to be taken for a
    known speaker: its vector is of little speech, which lowers every similarity."""
    known: float = 0.55
    """Similarity to an enrolled voice from which a speaker bears its name."""
    least_s: float = 1.5
    """Speech alone before a voice is a speaker."""
    revise_s: float = 30.0
    """How far back labels may change."""
    remember_s: float = 120.0
    """How far behind the frozen border labels can be asked for."""
    sure_s: float = 3.0
    """Evidence of more speech counts no more in a moment that others cover too: its vector is hardly surer,
    and the longer a voice is heard in one window, the more often it was two."""
    alike: float = 0.75
    """Evidence less similar to its speaker's voice than this counts less, in proportion: a vector of two
    people is like neither."""
    reach_s: float = 0.5
    """A span without speech takes the speaker of speech this near: word times are not that exact."""
    weight_s: float = 120.0
    """A frozen voice weighs no more than this much speech, so that it follows a change of room or headset."""
    strangers: int = 16
    """Unknown voices remembered; of more, those heard least are forgotten."""


@dataclass(frozen=True, slots=True)
class Who:
    """Who speaks most of a span."""

    speaker: int | None
    """From 1; None where nobody is heard or the evidence is less than `LinkerSettings.least_s`."""
    score: float | None = None
    """Mean similarity of what is heard to the speaker's voice, -1 to 1; None where it was not compared."""
    overlap: bool = False
    """Somebody else speaks at the same time for half of the span or more."""


class Linker:
    """One stream's speakers, numbered from 1 as they appear. All times are samples on the session's clock.

    Deterministic; memory is bounded by the revisable window and the speakers (some 1.5 KiB each), not by the
    length of the meeting.
    """

    def __init__(self, settings: LinkerSettings) -> None:
        self._s = settings
        self._timeline = Timeline(remember=to_samples(settings.remember_s) // FRAME)
        self._voices = Voices(
            VoiceSettings(
                same=settings.same,
                lend=settings.same - settings.lend_below,
                least_s=settings.least_s,
                weight_s=settings.weight_s,
                strangers=settings.strangers,
            )
        )
        self._reach = to_samples(settings.reach_s) // FRAME
        self._windows = 0
        self._units: dict[int, Vector] = {}
        self._enrolled: dict[str, Vector] = {}
        self._names: dict[int, tuple[str, float]] = {}
        self._gone: frozenset[int] = frozenset()
        """Numbers that nobody has, and nobody gets, for readers may call them by a name."""
        self._most = 0
        """The highest number that anybody had."""

    # -- what it knows ---------------------------------------------------------------------------

    @property
    def heard(self) -> int:
        """End of the newest window: what comes after was not listened to yet."""
        return self._timeline.heard * FRAME

    @property
    def frozen(self) -> int:
        """Labels before this sample never change."""
        return max(self._timeline.frozen - self._reach, 0) * FRAME

    @property
    def count(self) -> int:
        """Speakers so far."""
        return len(self._units)

    @property
    def names(self) -> dict[int, tuple[str, float]]:
        """Speaker -> name and similarity to the enrolled voice (1 where somebody gave the name)."""
        return dict(self._names)

    def who(self, start: int, end: int) -> Who:
        """Who speaks most of [start, end)."""
        first, last = start // FRAME, max(-(-end // FRAME), start // FRAME + 1)
        runs = list(self._timeline.runs(first, last)) or self._near(first, last)
        lengths: dict[int, int] = {}
        scores: dict[int, list[tuple[int, float]]] = {}
        for run in runs:
            length = run.end - run.start
            scores.setdefault(run.first, []).append((length, run.score))
            for speaker in {run.first, run.second} - {NOBODY}:
                lengths[speaker] = lengths.get(speaker, 0) + length
        if not lengths:
            return Who(None)
        # Of two all the time together, the one that is heard better.
        firsts = {speaker: sum(n for n, _ in told) for speaker, told in scores.items()}
        most = max(lengths, key=lambda n: (lengths[n], firsts.get(n, 0), n != UNKNOWN, -n))
        overlap = 2 * sum(run.end - run.start for run in runs if run.overlap) >= last - first
        if most == UNKNOWN:
            return Who(None, overlap=overlap)
        told = [(n, score) for n, score in scores.get(most, []) if not math.isnan(score)]
        score = sum(n * s for n, s in told) / sum(n for n, _ in told) if told else None
        return Who(most, score, overlap)

    def _near(self, first: int, last: int) -> list[Run]:
        """The run nearest to a stretch without speech, if one is near."""
        runs = self._timeline.runs(first - self._reach, last + self._reach)
        return sorted(runs, key=lambda run: max(run.start - last, first - run.end))[:1]

    def changes(self, start: int, end: int) -> tuple[int, ...]:
        """Where inside [start, end) one known speaker takes over from another; in a pause, its middle."""
        found: list[int] = []
        before: Run | None = None
        for run in self._timeline.runs(start // FRAME, -(-end // FRAME)):
            if run.first == UNKNOWN:
                continue
            if before is not None and before.first != run.first:
                found.append((before.end + run.start) * FRAME // 2)
            before = run
        return tuple(found)

    def turns(self, start: int, end: int) -> tuple[Turn, ...]:
        """Who is heard when inside [start, end), by start; what lies too far behind `frozen` is forgotten."""
        turns: list[Turn] = []
        open_: dict[int, tuple[int, int]] = {}
        for run in self._timeline.runs(start // FRAME, -(-end // FRAME)):
            for speaker in {run.first, run.second} - {NOBODY}:
                first, last = open_.get(speaker, (run.start, run.start))
                if last != run.start:
                    turns.append(_turn(first, last, speaker))
                    first = run.start
                open_[speaker] = first, run.end
        turns += [_turn(first, last, speaker) for speaker, (first, last) in open_.items()]
        return tuple(sorted(turns, key=lambda turn: (turn.start, turn.end, turn.speaker or 0)))

    # -- what it hears ---------------------------------------------------------------------------

    def hear(self, *windows: SpeakerWindow) -> None:
        """Take the voices of a window; their order means nothing. Freezes what is older than `revise_s`.

        Several at once are linked together, as a recording that is there as a whole can be.
        """
        for window in windows:
            # Before it is heard: after a long silence nothing is left that it would have to be laid beside.
            self.freeze(window.end - to_samples(self._s.revise_s))
            self._take(window)
        self._link()
        while self._timeline.windows > MOST_WINDOWS:
            self._freeze(self._timeline.oldest)

    def _take(self, window: SpeakerWindow) -> None:
        start, end = window.start // FRAME, -(-window.end // FRAME)
        voices = sorted(window.speakers, key=_order)
        active = np.zeros((len(voices), end - start), dtype=np.bool_)
        for row, voice in zip(active, voices, strict=True):
            row[:] = mask(voice.active, start, end)
        heard = Heard(start, active)
        self._timeline.add(heard)
        self._windows += 1
        for voice, alone in zip(voices, heard.alone(), strict=True):
            alone[: max(self._timeline.frozen - start, 0)] = False
            if voice.vector is not None and alone.any():
                self._voices.add(self._windows, start, alone, voice.vector)

    def export(self) -> list[KnownVoice]:
        """The speakers so far, for `restore`."""
        return self._voices.export()

    def restore(self, known: Sequence[KnownVoice], shown: Iterable[int]) -> None:
        """Go on with the speakers that another exported; before anything is heard. Numbers in `shown` whose
        voice is not known are given to nobody else."""
        self._voices.restore(known)
        self._units = {number: _unit(mean) for number, mean in self._voices.speakers.items()}
        self._gone = frozenset(shown) - frozenset(self._units)
        self._most = max(*self._units, *self._gone, 0, 0)

    def _link(self) -> None:
        self._voices.link(taken={*self._names, *self._gone})
        self._units = {number: _unit(mean) for number, mean in self._voices.speakers.items()}
        self._most = max(*self._units, self._most, 0)
        # Readers go on calling these by their names: nobody else may get such a number.
        self._gone |= self._names.keys() - self._units.keys()
        self._names = {number: name for number, name in self._names.items() if number in self._units}
        self._recognize()
        self._timeline.label([self._label(evidence) for evidence in self._voices.evidence])

    def _label(self, evidence: Evidence) -> Label:
        score = self._score(evidence.speaker, evidence.vector)
        alike = 1.0 if math.isnan(score) else min(max(score, 0.0) / self._s.alike, 1.0)
        weight = min(evidence.seconds, self._s.sure_s) * alike
        return Label(evidence.start, evidence.mask, evidence.speaker, weight, score)

    def _score(self, speaker: int, vector: Vector) -> float:
        unit = self._units.get(speaker)
        return float("nan") if unit is None else float(unit @ vector)

    def freeze(self, before: int) -> None:
        """Labels before sample `before`, rounded up to a frame, never change again; going back changes
        nothing."""
        if before > 0:
            # A span takes the speaker of speech near it, which then must be frozen too.
            self._freeze(-(-before // FRAME) + self._reach)

    def _freeze(self, border: int) -> None:
        if border <= self._timeline.frozen:
            return
        shown = {
            n for run in self._timeline.runs(self._timeline.frozen, border) for n in (run.first, run.second)
        }
        self._timeline.freeze(border)
        self._voices.freeze(border, shown - {NOBODY}, self._timeline.base)

    # -- names -----------------------------------------------------------------------------------

    def know(self, name: str, vector: Vector) -> None:
        """Enrol a voice; a speaker that is near enough bears its name from the next window on."""
        self._enrolled[name] = _unit(vector)

    def rename(self, speaker: int, name: str) -> None:
        """Call a speaker `name`, whatever the voice is like; raises KeyError for a number nobody had."""
        if speaker in self._units:
            self._names[speaker] = name, 1.0
        elif 1 <= speaker <= self._most:
            # It was another's voice after all, which whoever saw the number cannot know.
            self._gone |= {speaker}
        else:
            raise KeyError(speaker)

    def _recognize(self) -> None:
        """Give enrolled names to speakers without one; a name stays with its speaker."""
        given = {name for name, _ in self._names.values()}
        speakers = [n for n in sorted(self._units) if n not in self._names]
        names = [name for name in sorted(self._enrolled) if name not in given]
        if not speakers or not names:
            return
        near = (
            np.stack([self._units[n] for n in speakers])
            @ np.stack([self._enrolled[name] for name in names]).T
        )
        for row, column in assign(np.where(near >= self._s.known, near, 0)):
            self._names[speakers[row]] = names[column], float(near[row, column])


def _order(voice: LocalSpeaker) -> tuple[object, ...]:
    return voice.active, b"" if voice.vector is None else voice.vector.tobytes(), voice.alone


def _unit(vector: Vector) -> Vector:
    unit: Vector = (vector / max(float(np.linalg.norm(vector)), 1e-9)).astype(np.float32)
    return unit


def _turn(first: int, last: int, speaker: int) -> Turn:
    return Turn(first * FRAME, last * FRAME, speaker if speaker != UNKNOWN else None)
