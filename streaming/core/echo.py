"""Cross-track echo: one participant's loudspeaker, or neighbour, in another's microphone.

The rule here: a frame loses its voice only while another track that is heard carries the same signal, louder
and not later. Whether it is the same the signal alone decides: how much of the track's energy is a linear
function of the other one's, which is the coherence of their short-time spectra (Carter, Knapp and Nuttall,
1973) over a short memory, at the best of the delays that occur. People who speak at once share next to
nothing; one who speaks into the echo at equal level halves the share within the memory.

Where speech begins nearly at once on two tracks, one that is not louder but later by some 10 ms may look so
for a frame or two and lose them: the gate's padding brings them back.

It looks back only, and goes frame by frame: the same audio gives the same verdicts however it is packed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.contract import FRAME, SAMPLE_RATE, Audio, Voice

SPECTRUM = 3 * FRAME
"""Samples of one short-time spectrum, moved on by a frame at a time: longer than the early part of a room's
response, so that a delay between two frames costs little."""

SILENT = Voice(cheap=False, neural=0.0)

_FLOOR = np.float32(1e-9)
"""Added to each power: what is digital silence divides nothing by zero."""


@dataclass(frozen=True, slots=True)
class EchoSettings:
    """Seconds, where not said otherwise. Measured with real speech in simulated rooms."""

    on: float = 0.55
    """Echo begins where a louder track explains this share of the energy ..."""
    off: float = 0.4
    """... and ends where it falls below this."""
    louder_db: float = 6.0
    """The other track is at least so much louder."""
    delay_s: float = 0.5
    """The longest delay; work and memory grow with it."""
    memory_s: float = 0.2
    voice: float = 0.5
    """A frame is speech from this probability."""
    slack_s: float = 0.1
    """Voice activity of the two tracks may differ by this much."""
    low_hz: int = 150
    high_hz: int = 4000

    def __post_init__(self) -> None:
        if not 0 < self.off <= self.on < 1:
            raise ValueError(f"need 0 < off {self.off} <= on {self.on} < 1")
        if not self.louder_db > 0:
            raise ValueError(
                f"louder_db {self.louder_db} is not above 0: two tracks could silence each other"
            )


class EchoGate:
    """Feed all tracks together. Not thread-safe; memory, and work while all speak, grow with their square."""

    def __init__(self, tracks: int, settings: EchoSettings | None = None) -> None:
        self._s = s = settings or EchoSettings()
        self._ratio = 10 ** (s.louder_db / 10)
        self._keep = np.float32(np.exp(-FRAME / SAMPLE_RATE / s.memory_s))
        lags = _frames(s.delay_s) + 1
        self._slack = _frames(s.slack_s)
        self._lasts = lags + 3 * _frames(s.memory_s)
        low, high = (hz * SPECTRUM // SAMPLE_RATE for hz in (s.low_hz, s.high_hz))
        self._bins = slice(low, high)
        self._taper = np.hanning(SPECTRUM).astype(np.float32)
        self._tail = np.zeros((tracks, SPECTRUM - FRAME), np.float32)
        # By track and frames back, the newest first: spectra, their power over the memory, its sum.
        self._spectra = np.zeros((tracks, lags, high - low), np.complex64)
        self._powers = np.full((tracks, lags, high - low), _FLOOR, np.float32)
        self._levels = np.zeros((tracks, lags), np.float32)
        self._heard = np.zeros((tracks, lags + self._slack), np.bool_)
        self._squares = np.zeros(tracks, np.float32)
        # By source, target and frames back.
        self._cross = np.zeros((tracks, tracks, lags, high - low), np.complex64)
        self._since = np.full(tracks, self._lasts)
        """Frames since the track was heard; one that was not for long explains nothing."""
        self._echoing = [False] * tracks
        self._suppressed = [0] * tracks

    @property
    def suppressed(self) -> tuple[int, ...]:
        """Of each track the samples that voice activity took for speech and that are echo."""
        return tuple(self._suppressed)

    def judge(self, frames: tuple[Audio, ...], voices: tuple[list[Voice], ...]) -> tuple[list[Voice], ...]:
        """The verdicts, with those on echo turned to silence: of each track one for each of its whole frames
        (n * FRAME samples, the same n for all)."""
        audio = np.stack(frames)
        out: tuple[list[Voice], ...] = tuple([] for _ in frames)
        for number, verdicts in enumerate(zip(*voices, strict=True)):
            self._observe(audio[:, number * FRAME : (number + 1) * FRAME])
            for kept, verdict in zip(out, self._frame(verdicts), strict=True):
                kept.append(verdict)
        return out

    def _observe(self, frame: npt.NDArray[np.float32]) -> None:
        """Take in one frame of every track, (tracks, FRAME)."""
        window = np.concatenate((self._tail, frame), axis=1)
        self._tail = window[:, FRAME:]
        spectra = np.fft.rfft(window * self._taper, axis=1)[:, self._bins].astype(np.complex64)
        new = 1 - self._keep
        power = new * (_power(spectra) + _FLOOR)
        _push(self._spectra, spectra)
        _push(self._powers, self._keep * self._powers[:, 0] + power)
        _push(self._levels, self._powers[:, 0].sum(axis=1))
        self._squares = self._keep**2 * self._squares + np.square(power.sum(axis=1))
        for source, since in enumerate(self._since.tolist()):
            if since < self._lasts:
                self._cross[source] *= self._keep
                self._cross[source] += (new * spectra)[:, None] * self._spectra[source].conj()
            elif since == self._lasts:
                self._cross[source] = 0
        self._since += 1

    def _frame(self, verdicts: tuple[Voice, ...]) -> list[Voice]:
        _push(self._heard, np.zeros(len(verdicts), np.bool_))
        out = list(verdicts)
        # The loudest first: what may be its echo asks whether it is heard.
        for track in np.argsort(-self._levels[:, 0], kind="stable").tolist():
            voice = verdicts[track]
            if not voice.cheap:
                continue
            share = self._explained(track)
            self._echoing[track] = share >= (self._s.off if self._echoing[track] else self._s.on)
            speech = voice.neural >= self._s.voice
            if self._echoing[track]:
                out[track] = SILENT
                self._suppressed[track] += FRAME * speech
            elif speech:
                self._heard[track, 0] = True
                self._since[track] = 0
        return out

    def _explained(self, track: int) -> float:
        """Which share of the track's energy a louder track that is heard explains, at most 1.

        The best one alone counts: two that carry the same would explain it twice.
        """
        level, share = float(self._levels[track, 0]), 0.0
        for source, since in enumerate(self._since.tolist()):
            louder = self._levels[source] >= self._ratio * level
            if source == track or since >= self._lasts or not louder.any():
                continue
            parts = _power(self._cross[source, track]) / self._powers[source]
            explained = parts.sum(axis=1)
            # Louder where the two are alike, too: one who is echoed under a loud voice is not its echo.
            alike = (parts / self._powers[track, 0] * self._powers[source]).sum(axis=1)
            louder &= alike >= self._ratio * explained
            lag = int(np.argmax(np.where(louder, explained, 0.0)))
            if not louder[lag]:
                continue
            if self._heard[source, max(0, lag - self._slack) : lag + self._slack + 1].any():
                share = max(share, float(explained[lag]) / level)
        # One spectrum is always a linear function of another, n of them are by 1 / n: what chance explains.
        chance = float(self._squares[track]) / level**2
        return (share - chance) / (1 - chance) if chance < 1 else 0.0


def _frames(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE) // FRAME


def _power(spectra: npt.NDArray[np.complex64]) -> npt.NDArray[np.float32]:
    return np.square(spectra.real) + np.square(spectra.imag)


def _push(history: npt.NDArray[np.generic], newest: npt.NDArray[np.generic]) -> None:
    """Put the newest of every track in front, (tracks, ...), the oldest falls out."""
    history[:, 1:] = history[:, :-1]
    history[:, 0] = newest
