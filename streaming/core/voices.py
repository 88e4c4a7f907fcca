"""The voices of a meeting: evidence of the revisable window, and the voices frozen before.

Evidence is one vector: a local voice of one window, where it speaks alone. With each window all evidence
that is not frozen is clustered anew, together with the frozen voices, each of which stands as one row: the
mean of all its evidence. Two local voices of one window, and two frozen speakers, are never linked. A cluster
with `least_s` of speech is a speaker. A smaller one is lent to the nearest speaker if it is near enough, else
it is unknown; frozen, it is remembered as a stranger until it has enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from engine.contract import FRAME, SAMPLE_RATE, Vector

from .clustering import NEVER, agglomerate, assign
from .timeline import UNKNOWN, Mask

MOST_FROZEN = 64
"""Frozen evidence that is kept for the sake of windows that reach over the border."""

Sum = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class VoiceSettings:
    """What makes one voice of several vectors, and a speaker of a voice; see `LinkerSettings`."""

    same: float
    lend: float
    least_s: float
    weight_s: float
    strangers: int


@dataclass(slots=True, eq=False)
class Evidence:
    """One vector; times in frames."""

    start: int
    mask: Mask
    """From `start` on, the frames of which the vector is made; the first and the last are."""
    vector: Vector
    seconds: float
    gain: float
    """Seconds of it that no earlier evidence covers."""
    window: int
    """Number of the window it comes from: two of one window are two people."""
    speaker: int = UNKNOWN
    """The label shown."""
    voice: int = UNKNOWN
    """The speaker whose evidence it is; `UNKNOWN` where it is only lent."""
    frozen: bool = False

    @property
    def end(self) -> int:
        return self.start + len(self.mask)

    def within(self, start: int, end: int) -> Mask:
        """The mask of the frames [start, end)."""
        row = np.zeros(end - start, dtype=np.bool_)
        low, high = max(start, self.start), min(end, self.end)
        if low < high:
            row[low - start : high - start] = self.mask[low - self.start : high - self.start]
        return row


@dataclass(slots=True, eq=False)
class Voice:
    """All frozen evidence of one voice; a stranger while `number` is `UNKNOWN`."""

    number: int
    total: Sum
    """Of the vectors, each times its seconds."""
    seconds: float = 0.0
    heard_s: float = 0.0
    """Seconds, counted once however many vectors are made of them."""
    present: int = UNKNOWN
    """The speaker whose voice a stranger is by the present clustering."""

    def take(self, total: Sum, seconds: float, heard_s: float, most_s: float) -> None:
        """More of it; above `most_s` the old counts less."""
        self.total, self.seconds = self.total + total, self.seconds + seconds
        self.heard_s += heard_s
        if self.seconds > most_s:
            self.total, self.seconds = self.total * np.float32(most_s / self.seconds), most_s


@dataclass(frozen=True, slots=True, eq=False)
class KnownVoice:
    """A speaker as another process can take it over."""

    number: int
    total: Vector
    """Sum of its vectors, each times its seconds."""
    seconds: float
    heard_s: float


@dataclass(slots=True, eq=False)
class Cluster:
    """One voice as the present clustering sees it."""

    evidence: list[Evidence] = field(default_factory=list)
    voices: list[Voice] = field(default_factory=list)

    @property
    def number(self) -> int:
        """That of its frozen speaker."""
        return max((voice.number for voice in self.voices), default=UNKNOWN)

    @property
    def heard_s(self) -> float:
        return sum(e.gain for e in self.evidence) + sum(v.heard_s for v in self.voices)

    @property
    def mean(self) -> Vector:
        total = sum((v.total for v in self.voices), np.float32(0))
        total = sum((e.vector * np.float32(e.seconds) for e in self.evidence), total)
        seconds = sum(e.seconds for e in self.evidence) + sum(v.seconds for v in self.voices)
        mean: Vector = np.asarray(total, np.float32) / np.float32(seconds)
        return mean


class Voices:
    """Evidence in, speakers out. Memory: the evidence of the revisable window, and one vector a voice."""

    def __init__(self, settings: VoiceSettings) -> None:
        self._s = settings
        self.evidence: list[Evidence] = []
        self.speakers: dict[int, Vector] = {}
        """Number -> mean vector, not of unit length."""
        self._voices: list[Voice] = []

    # -- evidence --------------------------------------------------------------------------------

    def add(self, window: int, start: int, where: Mask, vector: Vector) -> None:
        """One voice of window number `window`, which begins at frame `start`; alone in the frames `where`."""
        frames = np.flatnonzero(where)
        start, where = start + int(frames[0]), where[frames[0] : frames[-1] + 1]
        known = np.zeros_like(where)
        for other in self.evidence:
            known |= other.within(start, start + len(where))
        fresh = _seconds(where & ~known)
        self.evidence.append(Evidence(start, where, vector, _seconds(where), fresh, window))

    def link(self, taken: Iterable[int]) -> None:
        """Cluster anew and give every evidence its speaker; new numbers are the lowest that are free and not
        in `taken`."""
        clusters = self._clusters()
        numbers = self._numbers(clusters, set(taken))
        pairs = list(zip(clusters, numbers, strict=True))
        self.speakers = {number: cluster.mean for cluster, number in pairs if number != UNKNOWN}
        for cluster, number in pairs:
            shown = number if number != UNKNOWN else self._lend(cluster.mean)
            for voice in cluster.voices:
                voice.present = number
            for evidence in cluster.evidence:
                evidence.voice, evidence.speaker = number, shown

    def _clusters(self) -> list[Cluster]:
        free = [evidence for evidence in self.evidence if not evidence.frozen]
        rows = [v.total / np.float32(v.seconds) for v in self._voices] + [e.vector for e in free]
        if not rows:
            return []
        vectors = np.stack(rows)
        near, shift = vectors @ vectors.T, len(self._voices)
        windows = np.array([evidence.window for evidence in free])
        near[shift:, shift:][windows[:, None] == windows] = NEVER
        speakers = np.flatnonzero([voice.number != UNKNOWN for voice in self._voices])
        near[np.ix_(speakers, speakers)] = NEVER
        seconds = [v.seconds for v in self._voices] + [e.seconds for e in free]
        clusters: dict[int, Cluster] = {}
        for row, label in enumerate(agglomerate(near, np.array(seconds, np.float32), self._s.same)):
            cluster = clusters.setdefault(int(label), Cluster())
            if row < shift:
                cluster.voices.append(self._voices[row])
            else:
                cluster.evidence.append(free[row - shift])
        return list(clusters.values())

    def _numbers(self, clusters: Sequence[Cluster], taken: set[int]) -> list[int]:
        """A number for each cluster that is a speaker: that of its frozen voice, else the one that most of
        its evidence had, else the lowest that is free; `UNKNOWN` for the others."""
        numbers = [cluster.number for cluster in clusters]
        fixed = {voice.number for voice in self._voices}
        new = [
            i
            for i, cluster in enumerate(clusters)
            if numbers[i] == UNKNOWN and cluster.evidence and cluster.heard_s >= self._s.least_s - 1e-6
        ]
        old = sorted({e.voice for i in new for e in clusters[i].evidence} - fixed - {UNKNOWN})
        shared = np.array(
            [[sum(e.seconds for e in clusters[i].evidence if e.voice == n) for n in old] for i in new],
            dtype=np.float32,
        )
        for row, column in assign(shared.reshape(len(new), len(old))):
            numbers[new[row]] = old[column]
        for i in sorted(new, key=lambda i: min(e.start for e in clusters[i].evidence)):
            if numbers[i] == UNKNOWN:
                # One that was never frozen and is nobody's now may be given again, unless it has a name.
                used = {*numbers, *taken}
                numbers[i] = next(n for n in range(1, len(used) + 2) if n not in used)
        return numbers

    def _lend(self, mean: Vector) -> int:
        """The speaker that a voice without evidence enough of its own is taken for."""
        near = {number: float(mean @ other) for number, other in self.speakers.items()}
        best = max(near, key=lambda number: (near[number], -number), default=UNKNOWN)
        return best if near.get(best, -1.0) >= self._s.lend else UNKNOWN

    # -- from process to process -----------------------------------------------------------------

    def export(self) -> list[KnownVoice]:
        """Every speaker, as if all evidence were frozen now; strangers are left out."""
        known = {v.number: Voice(v.number, v.total, v.seconds, v.heard_s) for v in self._voices}
        known.pop(UNKNOWN, None)
        for evidence in self.evidence:
            if evidence.voice != UNKNOWN and not evidence.frozen:
                voice = known.setdefault(
                    evidence.voice, Voice(evidence.voice, np.zeros_like(evidence.vector))
                )
                total = evidence.vector * np.float32(evidence.seconds)
                voice.take(total, evidence.seconds, evidence.gain, self._s.weight_s)
        return [KnownVoice(n, v.total, v.seconds, v.heard_s) for n, v in sorted(known.items())]

    def restore(self, known: Iterable[KnownVoice]) -> None:
        """Take over what another exported; before anything is heard."""
        self._voices = [Voice(v.number, v.total, v.seconds, v.heard_s) for v in known]
        self.speakers = {voice.number: voice.total / np.float32(voice.seconds) for voice in self._voices}

    # -- freezing --------------------------------------------------------------------------------

    def freeze(self, border: int, shown: Iterable[int], base: int) -> None:
        """Evidence that begins before frame `border` is final, and so is every speaker in `shown`; what ends
        before frame `base` is forgotten."""
        for evidence in self.evidence:
            if evidence.start < border and not evidence.frozen:
                self._keep(evidence)
        # A label just frozen may rest on later evidence alone, which then is final too.
        bare = set(shown) - {voice.number for voice in self._voices} - {UNKNOWN}
        for evidence in self.evidence:
            if evidence.voice in bare and not evidence.frozen:
                self._keep(evidence)
        frozen = [e for e in self.evidence if e.frozen and e.end > base][-MOST_FROZEN:]
        self.evidence = frozen + [e for e in self.evidence if not e.frozen]
        self._sift()

    def _keep(self, evidence: Evidence) -> None:
        """Make one evidence part of its speaker's voice, or of the nearest stranger's."""
        evidence.frozen = True
        voice = self._stranger(evidence.vector) if evidence.voice == UNKNOWN else self._voice(evidence.voice)
        if voice is None:
            voice = Voice(evidence.voice, np.zeros_like(evidence.vector))
            self._voices.append(voice)
        total = evidence.vector * np.float32(evidence.seconds)
        voice.take(total, evidence.seconds, evidence.gain, self._s.weight_s)

    def _voice(self, number: int) -> Voice | None:
        return next((voice for voice in self._voices if voice.number == number), None)

    def _stranger(self, vector: Vector) -> Voice | None:
        near = [
            (float(v.total @ vector) / v.seconds, -i, v)
            for i, v in enumerate(self._voices)
            if v.number == UNKNOWN
        ]
        best = max(near, default=None, key=lambda item: item[:2])
        return best[2] if best is not None and best[0] >= self._s.same else None

    def _sift(self) -> None:
        """Strangers that turned out to be speakers become them; of too many the least heard are forgotten."""
        for stranger in [v for v in self._voices if v.number == UNKNOWN and v.present != UNKNOWN]:
            speaker = self._voice(stranger.present)
            if speaker is not None:
                speaker.take(stranger.total, stranger.seconds, stranger.heard_s, self._s.weight_s)
                self._voices.remove(stranger)
        strangers = sorted((v for v in self._voices if v.number == UNKNOWN), key=lambda v: -v.heard_s)
        for stranger in strangers[self._s.strangers :]:
            self._voices.remove(stranger)


def _seconds(where: Mask) -> float:
    return int(where.sum()) * FRAME / SAMPLE_RATE
