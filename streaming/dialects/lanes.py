"""Audio of several people that comes in pieces, each with its time, as the channels of one stream. Pure.

One clock: sample 0 is where the first piece begins, and every piece lies where its own time says. What nobody
sent is silence, on all lanes for as long, so neither a piece that is lost nor one that comes twice or late
moves what follows. People may share a lane: they are added up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

HOLD_S = 0.2
"""So long what one person said waits for pieces of the others from the same time."""

LEAP_S = 60.0
"""A piece that claims to be further away than this has a broken time: it follows what came before."""

LAG_S = 30.0
"""While nothing comes at all the clock goes on so far behind: a line that stalled for less loses nothing."""

PACKET = 256 * 1024
"""Bytes of one piece that is given out, at most."""

Samples = npt.NDArray[np.int16] | npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Coding:
    """How a sample is written: s16le, or mu-law, which cannot be added up."""

    dtype: str = "<i2"
    silence: int = 0


S16 = Coding()
MULAW = Coding("u1", 0xFF)


_ISLANDS = 64
"""So many stretches behind a hole are remembered; with more the hole is waited out."""


class _Voice:
    """What one person said and is not given out yet, however many pieces it came in. On the lanes' clock."""

    def __init__(self, lane: int, coding: Coding) -> None:
        self.lane = lane
        self.last: tuple[int, bytes] = (0, b"")
        """The newest piece as it came."""
        self.end: int | None = None
        """Where its newest sample ends; None: it said nothing yet."""
        self.whole = 0
        """Before it no sample is missing."""
        self._coding = coding
        self._nothing: Samples = np.zeros(0, coding.dtype)
        self._held = self._nothing
        self._islands: list[tuple[int, int]] = []  # what came behind a hole

    def write(self, start: int, samples: Samples, given: int) -> None:
        """A piece, at or behind `given`; it counts where it overlaps an earlier one."""
        stop = start + samples.size
        if (more := stop - given - self._held.size) > 0:
            self._held = np.concatenate([self._held, self._silence(more)])
        self._held[start - given : stop - given] = samples
        self.end = max(self.end or 0, stop)
        self._islands = [*self._islands[: _ISLANDS - 1], (start, stop)]

    def see(self, given: int) -> None:
        """How far it is whole, now that everything before `given` has been given out."""
        self.whole = max(self.whole, given)
        for start, stop in sorted(self._islands):
            if start <= self.whole:
                self.whole = max(self.whole, stop)
        self._islands = [island for island in self._islands if island[0] > self.whole]

    def take(self, size: int) -> Samples | None:
        """The next samples, with silence where it said nothing; None: it holds nothing."""
        if not self._held.size:
            return None
        heard, self._held = self._held[:size], self._held[size:].copy()
        return np.concatenate([heard, self._silence(size - heard.size)])

    def _silence(self, size: int) -> Samples:
        return np.full(size, self._coding.silence, self._coding.dtype)


class Lanes:
    """Pieces in, interleaved channels out. Memory: `HOLD_S` and one piece of each voice; what is newer pushes
    the rest out."""

    def __init__(
        self, lanes: int, rate: int, coding: Coding = S16, slack_s: float = 0.0, *, more: bool = False
    ) -> None:
        """`rate` in samples a second; a piece that is less than `slack_s` off the end of the one before
        belongs right behind it: its time is when it was sent, not when it was spoken. `more`
        people may come than those who are heard: their first pieces are waited for too."""
        self._lanes = lanes
        self._rate = rate
        self._coding = coding
        self._more = more
        self._slack = round(slack_s * rate)
        self._voices: dict[str, _Voice] = {}
        self._origin: int | None = None
        self._given = 0
        self._newest = 0
        self.late = 0
        """Samples that came after their time had been given out, and are lost."""

    def put(self, who: str, lane: int, at_s: float | None, data: bytes) -> list[bytes]:
        """A piece by `who`, who is on `lane`, begun at `at_s` on the source's clock (None: right behind the
        one before); what is ready now."""
        samples: Samples = np.frombuffer(data[: len(data) // self._width * self._width], self._coding.dtype)
        voice = self._voices.setdefault(who, _Voice(lane, self._coding))
        at = None if at_s is None else round(at_s * self._rate)
        if not samples.size or (at is not None and voice.last == (at, data)):
            return []
        if at is not None:
            voice.last = at, data
        start = self._place(at, voice)
        if start < self._given:
            self.late += min(self._given - start, samples.size)
            samples = samples[self._given - start :]
            start = self._given
        if samples.size:
            voice.write(start, samples, self._given)
            self._newest = max(self._newest, start + samples.size)
        voice.see(self._given)
        return self._give(self._ready())

    def wait(self, quiet_s: float) -> list[bytes]:
        """Nothing came for so long: the silence that is certain by now."""
        heard = max((voice.end or 0 for voice in self._voices.values()), default=0)
        settled = heard if quiet_s > HOLD_S else self._given
        return self._give(max(settled, heard + round((quiet_s - LAG_S) * self._rate) if heard else 0))

    def finish(self) -> list[bytes]:
        """The rest."""
        return self._give(self._newest)

    @property
    def _width(self) -> int:
        return np.dtype(self._coding.dtype).itemsize

    def _place(self, at: int | None, voice: _Voice) -> int:
        """Where a piece goes on our clock."""
        if at is None:
            return self._newest if voice.end is None else voice.end
        if self._origin is None:
            self._origin = at - self._newest
        leap = round(LEAP_S * self._rate)
        if not (self._given - leap < at - self._origin <= self._newest + leap):
            self._origin = at - self._newest
        place = at - self._origin
        near = voice.end is not None and abs(place - voice.end) <= self._slack
        return voice.end if near and voice.end is not None else place

    def _ready(self) -> int:
        """The sample before which nothing more is waited for."""
        held = self._newest - round(HOLD_S * self._rate)
        voices = self._voices.values()
        all_here = not self._more and len({voice.lane for voice in voices}) == self._lanes
        return max(held, min(voice.whole for voice in voices)) if all_here else held

    def _give(self, until: int) -> list[bytes]:
        most = PACKET // (self._width * self._lanes)
        packets = []
        while self._given < until:
            size = min(most, until - self._given)
            packets.append(self._mixed(size))
            self._given += size
        self._newest = max(self._newest, self._given)
        return packets

    def _mixed(self, size: int) -> bytes:
        out: Samples = np.full((size, self._lanes), self._coding.silence, self._coding.dtype)
        used: set[int] = set()
        for voice in self._voices.values():
            if (heard := voice.take(size)) is None:
                continue
            if voice.lane in used:
                sums = out[:, voice.lane].astype(np.int32) + heard
                heard = np.clip(sums, -32768, 32767).astype(np.int16)
            out[:, voice.lane] = heard
            used.add(voice.lane)
        return out.tobytes()
