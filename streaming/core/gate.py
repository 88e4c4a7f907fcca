"""Speech edges from two-stage voice activity, with hysteresis and padding.

A frame counts as voiced where both stages say so. Speech starts after `onset` voiced frames in a row and
ends after `pause` samples without one. The padded spans of speech never overlap (2 * pad <= pause), so
speech and the silence between tile the clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from engine.contract import FRAME, Voice


@dataclass(frozen=True, slots=True)
class GateSettings:
    """Thresholds are probabilities, the rest samples."""

    on: float
    off: float
    onset: int
    pause: int
    pad: int

    def __post_init__(self) -> None:
        if 2 * self.pad > self.pause:
            raise ValueError(f"pad {self.pad} must be at most half of pause {self.pause}")
        if not 0 <= self.off <= self.on <= 1:
            raise ValueError(f"need 0 <= off {self.off} <= on {self.on} <= 1")


@dataclass(frozen=True, slots=True)
class Started:
    at: int


@dataclass(frozen=True, slots=True)
class Paused:
    """`at` is the padded end of the speech, `voice_end` the end of its last voiced frame."""

    at: int
    voice_end: int


Edge = Started | Paused


class _State(Enum):
    QUIET = auto()
    SPEECH = auto()


class SpeechGate:
    """Feed one `Voice` a frame; get an edge when one is certain."""

    def __init__(self, settings: GateSettings, start: int = 0, *, floor: int = 0) -> None:
        """The first frame begins at `start`; no speech begins before `floor`."""
        self._s = settings
        self._state = _State.QUIET
        self._run = 0
        self._floor = floor
        self.now = start
        self.voice_end = start
        """End of the last voiced frame, samples."""

    @property
    def speaking(self) -> bool:
        return self._state is _State.SPEECH

    @property
    def quiet_for(self) -> int:
        """Samples since the last voiced frame."""
        return self.now - self.voice_end

    def step(self, voice: Voice) -> Edge | None:
        """One frame of FRAME samples; edges come in order: Started, Paused, Started, ..."""
        self.now += FRAME
        threshold = self._s.off if self.speaking else self._s.on
        voiced = voice.cheap and voice.neural >= threshold and self.now > self._floor
        if voiced:
            self.voice_end = self.now
        if self._state is _State.QUIET:
            self._run = self._run + FRAME if voiced else 0
            if self._run < self._s.onset:
                return None
            self._state = _State.SPEECH
            return Started(max(self._floor, self.now - self._run - self._s.pad))
        if self.quiet_for < self._s.pause:
            return None
        return self.close()

    def close(self) -> Paused | None:
        """End running speech now (pause, flush or end of audio): its padded end, if there was any."""
        if self._state is _State.QUIET:
            return None
        self._state, self._run = _State.QUIET, 0
        self._floor = min(self.voice_end + self._s.pad, self.now)
        return Paused(self._floor, self.voice_end)


class Activity:
    """Which frames were voiced, for as long as their audio is kept."""

    def __init__(self, start: int = 0) -> None:
        self._flags = bytearray()
        self._first = start // FRAME  # frame index of _flags[0]

    def append(self, *, voiced: bool) -> None:
        self._flags.append(voiced)

    def evict(self, before: int) -> None:
        """Forget frames that end before this sample."""
        drop = min(before // FRAME - self._first, len(self._flags))
        if drop > 0:
            del self._flags[:drop]
            self._first += drop

    def voiced(self, start: int, end: int) -> int:
        """Voiced samples in [start, end), in whole frames."""
        a = max(start // FRAME - self._first, 0)
        b = max(end // FRAME - self._first, 0)
        return sum(self._flags[a:b]) * FRAME
