"""Who speaks: the local voices of overlapping windows linked to the people of a meeting. PURE.

Evidence is pieces: a second or two of one voice alone, with its vector. The pieces of the revisable window are
clustered anew with each window (average linkage, see `clustering`), together with the voices frozen before,
each of which stands as one row: the mean of all its pieces. Two pieces that windows hear as one voice are drawn
together, two that they hear as different voices are pushed apart, but vectors may overrule them: a window often
takes two people for one. A cluster with `least_s` of speech is a speaker. A smaller one is lent to the nearest
speaker if it is near enough, else it is unknown; unknown voices are remembered too, until they have enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from engine.contract import FRAME, LocalSpeaker, SpeakerWindow, Vector

from .clustering import NEVER, agglomerate, assign
from .spans import to_samples
from .timeline import NOBODY, UNKNOWN, Heard, Label, Mask, Run, Timeline, mask

MOST_PIECES = 400
"""Above this the older half is frozen, so that a source with a piece per breath cannot grow without bound."""


@dataclass(frozen=True, slots=True)
class LinkerSettings:
    """Similarities are of pieces of 1.5 s; seconds where not said otherwise."""

    same: float = 0.44
    """Mean similarity from which two clusters are one voice."""
    lend: float = 0.36
    """Mean similarity from which a voice without evidence enough of its own is taken for a known speaker."""
    known: float = 0.55
    """Similarity to an enrolled voice from which a speaker bears its name."""
    tie: float = 0.1
    """Added to the similarity of pieces that windows hear as one voice, taken off where they hear two."""
    least_s: float = 1.5
    """Speech alone before a voice is a speaker."""
    revise_s: float = 30.0
    """How far back labels may change."""
    remember_s: float = 120.0
    """How far behind the frozen border labels can be asked for."""
    reach_s: float = 0.5
    """A span without speech takes the speaker of speech this near: word times are not that exact."""
    weight_s: float = 120.0
    """A frozen voice weighs no more than this much speech, so that it can follow a change of room or headset."""
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


@dataclass(frozen=True, slots=True)
class Turn:
    """[start, end) in samples, in which one person is heard; turns that overlap are overlapped speech."""

    start: int
    end: int
    speaker: int | None


@dataclass(slots=True, eq=False)
class _Piece:
    """One vector of the revisable window; times in frames."""

    start: int
    mask: Mask
    vector: Vector
    seconds: float
    gain: float
    """Seconds of it that no earlier piece covers."""
    speaker: int = UNKNOWN
    """The label shown."""
    voice: int = UNKNOWN
    """The speaker whose evidence it is; `UNKNOWN` where it is only lent."""
    frozen: bool = False

    @property
    def end(self) -> int:
        return self.start + len(self.mask)


@dataclass(slots=True, eq=False)
class _Voice:
    """All frozen pieces of one voice; a stranger while `number` is `UNKNOWN`."""

    number: int
    total: npt.NDArray[np.float32]
    """Sum of vectors, each times its seconds."""
    weight: float
    heard_s: float
    present: int = UNKNOWN
    """The speaker whose voice a stranger is taken for by the present clustering."""

    @property
    def mean(self) -> Vector:
        mean: Vector = self.total / np.float32(self.weight)
        return mean

    def take(self, piece: _Piece, most: float) -> None:
        self.total = self.total + piece.vector * np.float32(piece.seconds)
        self.weight += piece.seconds
        self.heard_s += piece.gain
        self._cap(most)

    def absorb(self, other: _Voice, most: float) -> None:
        self.total = self.total + other.total
        self.weight += other.weight
        self.heard_s += other.heard_s
        self._cap(most)

    def _cap(self, most: float) -> None:
        if self.weight > most:
            self.total, self.weight = self.total * np.float32(most / self.weight), most


@dataclass(slots=True)
class _Cluster:
    """One voice as the present clustering sees it."""

    pieces: list[_Piece] = field(default_factory=list)
    voices: list[_Voice] = field(default_factory=list)

    @property
    def number(self) -> int:
        """That of its frozen speaker."""
        return max((voice.number for voice in self.voices), default=UNKNOWN)

    @property
    def heard_s(self) -> float:
        return sum(p.gain for p in self.pieces) + sum(v.heard_s for v in self.voices)

    @property
    def total(self) -> npt.NDArray[np.float32]:
        parts = [p.vector * np.float32(p.seconds) for p in self.pieces] + [v.total for v in self.voices]
        total: npt.NDArray[np.float32] = np.sum(parts, axis=0)
        return total

    @property
    def mean(self) -> Vector:
        mean: Vector = self.total / np.float32(
            sum(p.seconds for p in self.pieces) + sum(v.weight for v in self.voices)
        )
        return mean


class Linker:
    """One stream's speakers, numbered from 1 as they appear. All times are samples on the session's clock.

    Deterministic; memory is bounded by the revisable window and the speakers (some 1.5 KiB each), not by the
    length of the meeting.
    """

    def __init__(self, settings: LinkerSettings) -> None:
        self._s = settings
        self._timeline = Timeline(remember=to_samples(settings.remember_s) // FRAME)
        self._pieces: list[_Piece] = []
        self._ties = np.zeros((0, 0), dtype=np.float32)  # windows that hear two pieces as one voice, less two
        self._seen = np.zeros((0, 0), dtype=np.float32)  # windows that hear both
        self._voices: list[_Voice] = []
        self._speakers: dict[int, Vector] = {}  # unit means, for scores
        self._enrolled: dict[str, Vector] = {}
        self._names: dict[int, tuple[str, float]] = {}

    # -- what it knows ---------------------------------------------------------------------------

    @property
    def heard(self) -> int:
        """End of the newest window: what comes after was not listened to yet."""
        return self._timeline.heard * FRAME

    @property
    def frozen(self) -> int:
        """Labels before this sample never change."""
        return self._timeline.frozen * FRAME

    @property
    def count(self) -> int:
        """Speakers so far."""
        return len(self._speakers)

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
        most = max(lengths, key=lambda speaker: (lengths[speaker], speaker != UNKNOWN, -speaker))
        overlap = 2 * sum(run.end - run.start for run in runs if run.overlap) >= last - first
        if most == UNKNOWN:
            return Who(None, overlap=overlap)
        told = [(n, score) for n, score in scores.get(most, []) if not math.isnan(score)]
        score = sum(n * s for n, s in told) / sum(n for n, _ in told) if told else None
        return Who(most, score, overlap)

    def _near(self, first: int, last: int) -> list[Run]:
        """The run nearest to a stretch without speech, if one is near."""
        reach = to_samples(self._s.reach_s) // FRAME
        runs = self._timeline.runs(first - reach, last + reach)
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

    def hear(self, window: SpeakerWindow) -> None:
        """Take the voices of one window; their order means nothing. Freezes what is older than `revise_s`."""
        start, end = window.start // FRAME, -(-window.end // FRAME)
        voices = sorted(window.speakers, key=_order)
        active = np.zeros((len(voices), end - start), dtype=np.bool_)
        for row, voice in zip(active, voices, strict=True):
            row[:] = mask(voice.active, start, end)
        heard = Heard(start, active)
        self._timeline.add(heard)
        alone = heard.alone()
        for voice, only in zip(voices, alone, strict=True):
            self._take(voice, start, only)
        self._tie(heard, alone)
        self._link()
        self.freeze(window.end - to_samples(self._s.revise_s))
        while len(self._pieces) > MOST_PIECES:
            self.freeze(self._pieces[len(self._pieces) // 2].start * FRAME)

    def _take(self, voice: LocalSpeaker, start: int, alone: Mask) -> None:
        """The voice's pieces; without any, its own vector is one."""
        found = [(p.spans, p.vector) for p in voice.pieces]
        for spans, vector in sorted(found, key=lambda piece: piece[0]):
            first, last = spans[0][0] // FRAME, -(-spans[-1][1] // FRAME)
            self._add(first, mask(spans, first, last), vector)
        if not voice.pieces and voice.vector is not None:
            self._add(start, alone, voice.vector)

    def _add(self, start: int, where: Mask, vector: Vector) -> None:
        frames = np.flatnonzero(where)
        if not len(frames) or start + int(frames[0]) < self._timeline.frozen:
            return
        start, where = start + int(frames[0]), where[frames[0] : frames[-1] + 1]
        fresh = where.copy()
        for other in self._pieces:
            low, high = max(start, other.start), min(start + len(where), other.end)
            if low < high:
                fresh[low - start : high - start] &= ~other.mask[low - other.start : high - other.start]
        seconds, gain = (to_s(int(m.sum())) for m in (where, fresh))
        self._pieces.append(_Piece(start, where, vector, seconds, gain))
        grown = np.zeros((2, len(self._pieces), len(self._pieces)), dtype=np.float32)
        grown[0, :-1, :-1], grown[1, :-1, :-1] = self._ties, self._seen
        self._ties, self._seen = grown

    def _tie(self, heard: Heard, alone: Mask) -> None:
        """Count what this window says of each two pieces: one voice, two voices, or nothing."""
        if not self._pieces or not len(alone):
            return
        inside = np.zeros((len(self._pieces), heard.active.shape[1]), dtype=np.float32)
        for row, piece in zip(inside, self._pieces, strict=True):
            low, high = max(piece.start, heard.start), min(piece.end, heard.end)
            if low < high:
                where = piece.mask[low - piece.start : high - piece.start]
                row[low - heard.start : high - heard.start] = where
        sizes = np.array([[max(int(piece.mask.sum()), 1)] for piece in self._pieces])
        mine = (inside @ alone.T.astype(np.float32) / sizes > 0.7).astype(np.float32)
        same, told = mine @ mine.T, mine.any(axis=1).astype(np.float32)
        both = np.outer(told, told)
        self._ties += 2 * same - both
        self._seen += both

    # -- linking ---------------------------------------------------------------------------------

    def _link(self) -> None:
        """Cluster the free pieces and the frozen voices, name the clusters, label the timeline."""
        free = [i for i, piece in enumerate(self._pieces) if not piece.frozen]
        clusters = self._clusters(free)
        before = [[piece.speaker for piece in cluster.pieces] for cluster in clusters]
        numbers = self._numbers(clusters, before)
        self._speakers = {
            number: _unit(cluster.total)
            for cluster, number in zip(clusters, numbers, strict=True)
            if number != UNKNOWN
        }
        means = {n: c.mean for c, n in zip(clusters, numbers, strict=True) if n != UNKNOWN}
        for cluster, number in zip(clusters, numbers, strict=True):
            for voice in cluster.voices:
                voice.present = number
            for piece in cluster.pieces:
                piece.voice = number
                piece.speaker = number if number != UNKNOWN else self._lend(cluster, means)
        self._names = {n: name for n, name in self._names.items() if n in self._speakers}
        self._recognize()
        self._timeline.label(
            [Label(p.start, p.mask, p.speaker, p.seconds, self._score(p)) for p in self._pieces]
        )

    def _clusters(self, free: Sequence[int]) -> list[_Cluster]:
        pieces = [self._pieces[i] for i in free]
        rows = [voice.mean for voice in self._voices] + [piece.vector for piece in pieces]
        if not rows:
            return []
        vectors = np.stack(rows)
        near = vectors @ vectors.T
        shift = len(self._voices)
        known = np.flatnonzero([voice.number != UNKNOWN for voice in self._voices])
        near[np.ix_(known, known)] = NEVER
        chosen = np.ix_(free, free)
        near[shift:, shift:] += self._s.tie * self._ties[chosen] / np.maximum(self._seen[chosen], 1)
        weights = np.array([v.weight for v in self._voices] + [p.seconds for p in pieces], dtype=np.float32)
        clusters: dict[int, _Cluster] = {}
        for row, label in enumerate(agglomerate(near, weights, self._s.same)):
            cluster = clusters.setdefault(int(label), _Cluster())
            if row < shift:
                cluster.voices.append(self._voices[row])
            else:
                cluster.pieces.append(pieces[row - shift])
        return list(clusters.values())

    def _numbers(self, clusters: Sequence[_Cluster], before: Sequence[Sequence[int]]) -> list[int]:
        """A number for each cluster that is a speaker: that of its frozen voice, else the one most of its
        pieces had, else the lowest that is free; `UNKNOWN` for the others."""
        numbers = [cluster.number for cluster in clusters]
        fixed = {voice.number for voice in self._voices}
        new = [
            i
            for i, cluster in enumerate(clusters)
            if numbers[i] == UNKNOWN and cluster.heard_s >= self._s.least_s - 1e-6
        ]
        old = sorted({n for i in new for n in before[i]} - fixed - {UNKNOWN})
        shared = [
            [
                sum(p.seconds for p, n in zip(clusters[i].pieces, before[i], strict=True) if n == number)
                for number in old
            ]
            for i in new
        ]
        for row, column in assign(np.array(shared, dtype=np.float32).reshape(len(new), len(old))):
            numbers[new[row]] = old[column]
        for i in sorted(new, key=lambda i: min((p.start for p in clusters[i].pieces), default=0)):
            if numbers[i] == UNKNOWN:
                # A number that was never frozen and is nobody's now may be given again, unless it has a name.
                taken = {*numbers, *fixed, *self._names}
                numbers[i] = next(n for n in range(1, len(taken) + 2) if n not in taken)
        return numbers

    def _lend(self, cluster: _Cluster, means: dict[int, Vector]) -> int:
        """The speaker that a voice without enough evidence is taken for."""
        mine = cluster.mean
        best = max(means, key=lambda number: (float(mine @ means[number]), -number), default=UNKNOWN)
        return best if best != UNKNOWN and float(mine @ means[best]) >= self._s.lend else UNKNOWN

    def _score(self, piece: _Piece) -> float:
        speaker = self._speakers.get(piece.speaker)
        return float(piece.vector @ speaker) if speaker is not None else float("nan")

    # -- freezing --------------------------------------------------------------------------------

    def freeze(self, before: int) -> None:
        """Labels before sample `before` never change again; going back changes nothing."""
        border = before // FRAME
        if border <= self._timeline.frozen:
            return
        self._timeline.freeze(border)
        for piece in self._pieces:
            if piece.start < border and not piece.frozen:
                self._keep(piece)
        shown = {n for run in self._timeline.runs(0, border) for n in (run.first, run.second)}
        kept = {voice.number for voice in self._voices}
        for piece in self._pieces:
            # A label just frozen may rest on pieces after the border alone: they are frozen with it.
            if piece.voice in shown - kept - {UNKNOWN} and not piece.frozen:
                self._keep(piece)
        self._drop(self._timeline.base)
        self._forget()

    def _keep(self, piece: _Piece) -> None:
        """Freeze one piece into the voice of its speaker, or into the nearest stranger."""
        piece.frozen = True
        voice = next((v for v in self._voices if v.number == piece.voice != UNKNOWN), None)
        if piece.voice == UNKNOWN:
            strangers = [v for v in self._voices if v.number == UNKNOWN]
            voice = max(strangers, key=lambda v: float(v.mean @ piece.vector), default=None)
            if voice is not None and float(voice.mean @ piece.vector) < self._s.same:
                voice = None
        if voice is None:
            voice = _Voice(piece.voice, np.zeros_like(piece.vector), 0.0, 0.0)
            self._voices.append(voice)
        voice.take(piece, self._s.weight_s)

    def _drop(self, base: int) -> None:
        """Forget frozen pieces that no window speaks of."""
        kept = [i for i, piece in enumerate(self._pieces) if not piece.frozen or piece.end > base]
        self._pieces = [self._pieces[i] for i in kept]
        self._ties, self._seen = self._ties[np.ix_(kept, kept)], self._seen[np.ix_(kept, kept)]

    def _forget(self) -> None:
        """Let strangers that turned out to be speakers become them; forget the least heard of too many."""
        speakers = {voice.number: voice for voice in self._voices if voice.number != UNKNOWN}
        for voice in [v for v in self._voices if v.number == UNKNOWN and v.present in speakers]:
            speakers[voice.present].absorb(voice, self._s.weight_s)
            self._voices.remove(voice)
        strangers = sorted((v for v in self._voices if v.number == UNKNOWN), key=lambda v: -v.heard_s)
        lost = strangers[self._s.strangers :]
        self._voices = [voice for voice in self._voices if voice not in lost]

    # -- names -----------------------------------------------------------------------------------

    def know(self, name: str, vector: Vector) -> None:
        """Enrol a voice; a speaker that is near enough bears its name from the next window on."""
        self._enrolled[name] = _unit(vector)

    def rename(self, speaker: int, name: str) -> None:
        """Call a speaker `name`, whatever the voice is like; raises KeyError for a number nobody has."""
        if speaker not in self._speakers:
            raise KeyError(speaker)
        self._names[speaker] = name, 1.0

    def _recognize(self) -> None:
        """Give enrolled names to speakers without one; a name stays with its speaker."""
        given = {name for name, _ in self._names.values()}
        speakers = [n for n in sorted(self._speakers) if n not in self._names]
        names = [name for name in sorted(self._enrolled) if name not in given]
        if not speakers or not names:
            return
        near = (
            np.stack([self._speakers[n] for n in speakers])
            @ np.stack([self._enrolled[name] for name in names]).T
        )
        for row, column in assign(np.where(near >= self._s.known, near, 0)):
            self._names[speakers[row]] = names[column], float(near[row, column])


def _order(voice: LocalSpeaker) -> tuple[object, ...]:
    return voice.active, b"" if voice.vector is None else voice.vector.tobytes(), voice.alone


def to_s(frames: int) -> float:
    return frames * FRAME / 16_000


def _unit(vector: npt.NDArray[np.float32]) -> Vector:
    unit: Vector = (vector / max(float(np.linalg.norm(vector)), 1e-9)).astype(np.float32)
    return unit


def _turn(first: int, last: int, speaker: int) -> Turn:
    return Turn(first * FRAME, last * FRAME, speaker if speaker != UNKNOWN else None)
