"""Times and speakers inside a text, `[start][S01]text[end]`, read while it grows. PURE.

Marks come damaged in every way: a missing end, an end that is also the next start, a tag with one digit, a
cut last bracket, a time that cannot be. Everything that can be read is kept; nothing that was said is dropped
for a mark, and nobody is named whom no tag names.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .text_words import readable

CONTROLS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
MARKUP = re.compile(
    r"\[\s{0,3}(?:(?P<time>\d{1,6}(?:\.\d{0,6})?)|[Ss]\s{0,3}(?P<speaker>\d{1,4}))\s{0,3}\]"
    "|" + "|".join(map(re.escape, CONTROLS))
)
"""A time mark, a speaker tag, or a token that is no text. Bounded, so that a part of one is, too."""
_PART = re.compile(r"\[\s{0,3}(?:\d{1,6}(?:\.\d{0,6})?\s{0,3}|[Ss](?:\s{0,3}\d{0,4}\s{0,3})?)?\Z")
"""What a mark begins with, at the end of what came so far."""
_LONGEST = 32
FASTEST = 50.0
"""Characters a second that nobody says."""
OVERSHOOT_S = 5.0
"""Times may lie so far behind the audio; further away they are no times of it."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One stretch of one speaker; seconds from the audio's beginning, None where no mark says it."""

    text: str
    start: float | None
    end: float | None
    speaker: int | None


class MarkupReader:
    """One growing output; however it is cut, the segments are the same. Costs what is new only."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        """Those that are whole."""
        self.reached: float | None = None
        """The newest time mark."""
        self._rest = ""
        self._text = ""
        self._start: float | None = None
        self._speaker: int | None = None
        self._timed = False  # whether the last mark was a time

    def feed(self, text: str) -> None:
        """What the output goes on with."""
        rest, position = self._rest + text, 0
        for mark in MARKUP.finditer(rest):
            self._say(rest[position : mark.start()])
            position = mark.end()
            if mark["time"] is not None:
                self._time(float(mark["time"]))
            elif mark["speaker"] is not None:
                self._tag(int(mark["speaker"]))
        keep = _part_from(rest, position)
        self._say(rest[position:keep])
        self._rest = rest[keep:]

    def finish(self) -> list[Segment]:
        """No more comes: all segments, without a cut last mark."""
        if not _PART.match(self._rest) and not self._rest.startswith("<|"):
            self._say(self._rest)
        self._rest = ""
        self._close(None)
        return self.segments

    def _say(self, text: str) -> None:
        self._text += text
        self._timed = self._timed and not text.strip()

    def _time(self, time: float) -> None:
        self.reached = time
        if self._text.strip():
            self._close(time)
        else:
            if self._timed:
                # An end and a start: whoever speaks now is told by a tag, or is not known.
                self._speaker = None
            self._start = time
        self._timed = True

    def _tag(self, speaker: int) -> None:
        if self._text.strip():
            self._close(None)
        self._speaker, self._timed = speaker, False

    def _close(self, end: float | None) -> None:
        if said := readable(self._text).strip():
            self.segments.append(Segment(said, self._start, end, self._speaker))
            self._start = None
        self._text = ""


def parse(output: str) -> list[Segment]:
    """Segments of any output, damaged or not; all its text is in them, in order."""
    reader = MarkupReader()
    reader.feed(output)
    return reader.finish()


def _part_from(text: str, position: int) -> int:
    """Where something begins at the end of `text`, behind `position`, that may become a mark; its length
    where nothing does."""
    for place in range(max(position, len(text) - _LONGEST), len(text)):
        if text[place] == "[" and _PART.match(text, place):
            return place
        if text[place] == "<" and any(control.startswith(text[place:]) for control in CONTROLS):
            return place
    return len(text)


def settle(segments: Sequence[Segment], seconds: float) -> list[Segment]:
    """Segments with times inside the audio, in order, none missing.

    Of times that contradict each other those count that most others agree with in their order; what lies
    between two known times is divided by the length of the text.
    """
    marks = [time for segment in segments for time in (segment.start, segment.end)]
    known = _ordered([None if t is None or t > seconds + OVERSHOOT_S else min(t, seconds) for t in marks])
    for i, segment in enumerate(segments):
        start, end = known[2 * i : 2 * i + 2]
        if start is not None and end is not None and (end - start) * FASTEST < len(segment.text):
            known[2 * i : 2 * i + 2] = None, None  # nobody says so much in the time
    weights = [0.0 if slot % 2 == 0 else float(len(segments[slot // 2].text)) for slot in range(len(marks))]
    times = _filled(known, weights, seconds)
    return [replace(segment, start=times[2 * i], end=times[2 * i + 1]) for i, segment in enumerate(segments)]


def _ordered(times: Sequence[float | None]) -> list[float | None]:
    """A longest part of `times` that never falls (patience sorting); None for the others."""
    tails: list[float] = []
    places: list[int] = []
    before: list[int | None] = [None] * len(times)
    for place, time in enumerate(times):
        if time is None:
            continue
        rank = bisect_right(tails, time)
        before[place] = places[rank - 1] if rank else None
        tails[rank:] = [time]
        places[rank:] = [place]
    kept: list[float | None] = [None] * len(times)
    last = places[-1] if places else None
    while last is not None:
        kept[last] = times[last]
        last = before[last]
    return kept


def _filled(known: Sequence[float | None], weights: Sequence[float], seconds: float) -> list[float]:
    """All times; `weights[i]` is how much text lies before the time `i`."""
    out: list[float] = []
    left, run = 0.0, list[float]()
    for time, weight in zip([*known, seconds], [*weights, 0.0], strict=True):
        run.append(weight)
        if time is None:
            continue
        total, passed = sum(run), 0.0
        for part in run[:-1]:
            passed += part
            out.append(left + (time - left) * (passed / total if total else 0.0))
        out.append(time)
        left, run = time, []
    return out[:-1]
