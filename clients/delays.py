"""From a playback to delays: how long after it was spoken a reader sees a word. PURE. Seconds.

Where a word was spoken is an opinion: the service's own word times are one, a bench brings a better one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from msgspec import UnsetType

from .play import Playback

PAUSE_BEFORE_S = 0.3
"""A segment opens after a pause if so much silence lies before its first word. Segments cut out of running
speech say nothing about how fast the first word of a turn appears."""


@dataclass(frozen=True, slots=True)
class WordTimes:
    """Start and end of every committed word, by its index in `captions.transcript`."""

    starts: Sequence[float]
    ends: Sequence[float]


@dataclass(frozen=True, slots=True)
class Delays:
    """`commit`: a word each. `first_text`: a segment that opens after a pause each, after its first word
    starts. `final`: a segment that a pause ends each, after the pause could be known."""

    commit: list[float]
    first_text: list[float]
    final: list[float]

    def __add__(self, other: Delays) -> Delays:
        return Delays(
            self.commit + other.commit, self.first_text + other.first_text, self.final + other.final
        )


def own_times(playback: Playback) -> WordTimes:
    """The service's own opinion."""
    words = playback.captions.transcript
    return WordTimes([w.start_ms / 1000 for w in words], [w.end_ms / 1000 for w in words])


def measure(playback: Playback, times: WordTimes) -> Delays:
    """The delays of one stream that was played at speed 1."""
    found = Delays([], [], [])
    found.commit.extend(at - end for at, end in zip(playback.committed_s, times.ends, strict=True))
    ready = playback.captions.ready
    pause_s = ready.pause_ms / 1000 if ready else 0.0
    for track in playback.captions.tracks:
        _observe(playback, times, track, pause_s, found)
    return found


def _observe(
    playback: Playback, times: WordTimes, track: int | UnsetType, pause_s: float, found: Delays
) -> None:
    captions = playback.captions
    segments = [s for s in captions.ordered() if s.words and s.track == track]
    for segment, following in zip_longest(segments, segments[1:]):
        first, last = captions.place(segment, 0), captions.place(segment, len(segment.words) - 1)
        if first is None or last is None or last >= len(times.ends):
            continue
        previous = captions.place(segment, -1)
        before = float("-inf") if previous is None else times.ends[previous]
        if times.starts[first] - before >= PAUSE_BEFORE_S and segment.id in playback.first_text_s:
            found.first_text.append(playback.first_text_s[segment.id] - times.starts[first])
        start = captions.place(following, 0) if following else None
        after = playback.sent_s if start is None else times.starts[start]
        if after - times.ends[last] >= pause_s and last in playback.final_s:
            found.final.append(playback.final_s[last] - times.ends[last] - pause_s)
