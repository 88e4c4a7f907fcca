"""When to decode, and which stretch of audio.

A *window* slides over the audio: it begins a little before the newest committed word, so that the engine
hears some speech it already knows, and ends at the newest sample. While somebody speaks it is decoded again
every refresh (tick); at a pause or a flush it is decoded to the end of the speech; where nobody pauses and
the window outgrows the model, it is cut at its quietest place (seam).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from .ring import AudioRing
from .seams import seam
from .spans import to_samples


class Cause(StrEnum):
    """Why a window is decoded; all but TICK are final for the audio they cover."""

    TICK = "tick"
    PAUSE = "pause"
    SEAM = "seam"


FIRST_LAST = 1.5
"""How rare refreshes become before searches for first words do, too: who is let in up to `admission.stretch`
waits for those no longer than without load (else 8 of 24 had p95 1.58 of that alone instead of 1.43)."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Decode [start, end)."""

    start: int
    end: int
    cause: Cause

    @property
    def final(self) -> bool:
        return self.cause is not Cause.TICK


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """All in samples. `longest` is the model's limit or the scheduler's, whichever is less."""

    first: int
    """Speech before the first decode of a segment."""
    refresh: int
    soft_pause: int
    """Silence after which a decode is worth its cost at once: it will serve as the final one."""
    tail: int
    """Silence after the last voiced frame that a decode must have heard to serve as final."""
    keep: int
    """Committed audio kept at the window's beginning."""
    slack: int
    """The window's beginning moves only by at least this much."""
    search: int
    """A cut without a pause is looked for in this much audio."""
    longest: int
    forget: int
    """Silence after which a new segment gets a window of its own."""


class Segmenter:
    """Keeps the window's beginning (`origin`) and how far it was decoded (`heard`)."""

    def __init__(self, settings: WindowSettings, origin: int = 0, *, heard: int = 0) -> None:
        self._s = settings
        self.stretch = 1.0
        self.brief = False
        self.origin = origin
        self._committed = origin
        self.heard = heard
        """End of the last window sent to the engine."""

    @property
    def refresh(self) -> int:
        """Present interval between ticks, samples."""
        return round(self._s.refresh * self.stretch)

    @property
    def first(self) -> int:
        """Present wait for a segment's first words, and from one search for them to the next; samples."""
        return round(self._s.first * max(1.0, self.stretch / FIRST_LAST))

    @property
    def tail(self) -> int:
        """Silence after the last voiced frame that a final decode must have heard, samples."""
        return self._s.tail

    def shorten(self, longest: int) -> None:
        """From now on windows are at most so long, samples."""
        self._s = replace(self._s, longest=min(longest, self._s.longest))

    def fits(self, end: int) -> bool:
        """Whether one window can reach from the origin to `end`."""
        return end - self.origin <= self._s.longest

    def final_cut(self, ring: AudioRing, end: int) -> Cut:
        """The cut that finishes speech ending at `end`, or its first part where the model takes no more."""
        if self.fits(end):
            return Cut(self.origin, end, Cause.PAUSE)
        return self._seam(ring)

    def tick(self, ring: AudioRing, now: int, *, start: int, voice_end: int, shown: bool) -> Cut | None:
        """What to decode while a segment that began at `start` is being spoken, if anything, now.

        Until any of its text was `shown`, decodes come as often as the first one came early.
        """
        if not self.fits(now):
            return self._seam(ring)
        if self.heard <= start:
            due = now - start >= self.first
        elif now - voice_end >= self._s.soft_pause:
            due = not self.covers(voice_end)
        else:
            due = now - self.heard >= (self.refresh if shown else min(self.first, self.refresh))
        if not due:
            return None
        # What heard the silence after the speech may serve as final: only what cannot is shortened.
        brief = self.brief and now - voice_end < self._s.tail
        return Cut(self._behind(ring, self._s.keep // 2) if brief else self.origin, now, Cause.TICK)

    def covers(self, voice_end: int) -> bool:
        """Whether the last window sent heard enough silence after `voice_end` to be final."""
        return self.heard >= voice_end + self._s.tail

    def _seam(self, ring: AudioRing) -> Cut:
        limit = self.origin + self._s.longest
        return Cut(self.origin, seam(ring, limit - self._s.search, limit), Cause.SEAM)

    def early(self, ring: AudioRing, end: int, without: int) -> Cut:
        """The cut that finishes a window before it is full, whose last `without` samples and more brought no
        text: in them, near their `end`."""
        return Cut(self.origin, seam(ring, end - min(self._s.search, without // 2), end), Cause.SEAM)

    def committed(self, ring: AudioRing, end: int) -> None:
        """Words up to `end` are committed: move the window's beginning on, to a quiet place."""
        self._committed = end
        self.origin = self._behind(ring, self._s.keep)

    def _behind(self, ring: AudioRing, keep: int) -> int:
        """A quiet place for a window to begin that keeps so much of what is committed; the present one where
        that is not worth it."""
        latest = self._committed - keep
        if latest - self.origin < self._s.slack:
            return self.origin
        return max(self.origin, seam(ring, max(self.origin, latest - self._s.slack), latest))

    def restart(self, start: int, last_end: int) -> None:
        """A segment begins at `start`, the one before ended at `last_end`."""
        if start - last_end >= self._s.forget:
            self.origin = max(self.origin, start)

    def keep_from(self, pending: int, last_end: int, *, speaking: bool) -> int:
        """Audio before this sample will not be decoded again.

        `pending` is where undecoded audio begins (now, while nobody speaks), `last_end` where the last
        segment ended. In a long silence only what a new segment may reach back for is kept.
        """
        recent = pending - to_samples(0.6)
        if not speaking and recent - last_end >= self._s.forget:
            return recent
        return min(self.origin, pending)
