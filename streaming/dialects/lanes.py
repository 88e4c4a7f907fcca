"""Audio of several people that comes in pieces, each with its time, as the channels of one stream. Pure.

One clock: sample 0 is where the first piece begins, and every piece lies where its own time says. What nobody
sent is silence, on all lanes for as long, so neither a piece that is lost nor one that comes twice or late
moves what follows. People may share a lane: they are added up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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


@dataclass(slots=True, eq=False)
class _Voice:
    lane: int
    last: tuple[int, bytes] = (0, b"")
    """The newest piece as it came."""
    end: int | None = None
    """Where its newest sample ends, on the clock; None: it said nothing yet."""
    whole: int = 0
    """Before it no sample is missing."""
    pieces: list[tuple[int, Samples]] = field(default_factory=list)
    """Not given out yet: the later one counts where two overlap."""


class Lanes:
    """Pieces in, interleaved channels out. Memory: what `HOLD_S` and one leap take."""

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
        voice = self._voices.setdefault(who, _Voice(lane))
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
            voice.pieces.append((start, samples))
            voice.end = max(voice.end or 0, start + samples.size)
            self._newest = max(self._newest, voice.end)
        self._complete(voice)
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

    def _complete(self, voice: _Voice) -> None:
        """See how far the voice is whole."""
        voice.whole = max(voice.whole, self._given)
        for start, samples in sorted(voice.pieces, key=lambda piece: piece[0]):
            if start <= voice.whole:
                voice.whole = max(voice.whole, start + samples.size)

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
            packets.append(self._mixed(self._given, size))
            self._given += size
        self._newest = max(self._newest, self._given)
        return packets

    def _mixed(self, start: int, size: int) -> bytes:
        out: Samples = np.full((size, self._lanes), self._coding.silence, self._coding.dtype)
        used: set[int] = set()
        for voice in self._voices.values():
            if (heard := self._taken(voice, start, start + size)) is None:
                continue
            if voice.lane in used:
                sums = out[:, voice.lane].astype(np.int32) + heard
                heard = np.clip(sums, -32768, 32767).astype(np.int16)
            out[:, voice.lane] = heard
            used.add(voice.lane)
        return out.tobytes()

    def _taken(self, voice: _Voice, start: int, end: int) -> Samples | None:
        """What a voice says from `start` to `end`; None: nothing. The rest of it stays."""
        if not voice.pieces:
            return None
        heard: Samples = np.full(end - start, self._coding.silence, self._coding.dtype)
        rest = []
        for at, samples in voice.pieces:
            stop = at + samples.size
            if at < end:
                heard[max(at, start) - start : min(stop, end) - start] = samples[
                    max(start - at, 0) : max(end - at, 0)
                ]
            if stop > end:
                rest.append((at, samples))
        voice.pieces = rest
        return heard
