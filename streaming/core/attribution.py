"""Who spoke which words: a session's segments become segments of one speaker each.

Text comes first, evidence on voices a second or two later. So a segment is shown whole and is split at a word
border once two people are heard in it: the words behind the border move to a new segment, with the index and
the times they had. Splits stay; what a part's speaker is may be revised until it is frozen.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from engine.contract import Word

from .events import Event, SegmentUpdated, SpeakerRevised
from .spans import to_samples
from .speakers import Who

SETTLED = to_samples(0.3)
"""So much must have been listened to after a word before its speaker may split a segment."""

SHORTEST = to_samples(0.25)
"""Words of one speaker, taken together, that are shorter than this do not split a segment."""


UNKNOWN = Who(None, None, overlap=False)


class Speakers(Protocol):
    """The voices heard so far. Times are samples on the session's clock."""

    @property
    def heard(self) -> int:
        """Everything before was listened to."""
        ...

    @property
    def frozen(self) -> int:
        """Nothing before changes any more."""
        ...

    def who(self, start: int, end: int) -> Who: ...


@dataclass(slots=True)
class _Part:
    """The words of one segment from `first` to the next part's first, as readers know them under `id`."""

    first: int
    id: int
    revision: int = 0
    shown: SegmentUpdated | None = None
    who: Who = UNKNOWN
    frozen: bool = False


@dataclass(slots=True)
class _Whole:
    """A segment as the text side knows it, and its parts in order."""

    update: SegmentUpdated
    parts: list[_Part] = field(default_factory=list)


class Attribution:
    """Takes the segments of one session, gives segments with speakers; new ids are drawn from `ids`."""

    def __init__(self, speakers: Speakers, ids: Iterator[int]) -> None:
        self._speakers = speakers
        self._ids = ids
        self._wholes: dict[int, _Whole] = {}

    def receive(self, update: SegmentUpdated) -> list[Event]:
        """The next state of a segment; what readers are to be told."""
        whole = self._wholes.get(update.segment)
        if whole is None:
            whole = self._wholes[update.segment] = _Whole(update, [_Part(0, next(self._ids))])
        whole.update = update
        return self._tell(whole)

    def review(self) -> list[Event]:
        """After new evidence: what readers are to be told."""
        events: list[Event] = []
        for id, whole in list(self._wholes.items()):
            events += self._tell(whole)
            if all(part.frozen for part in whole.parts):
                del self._wholes[id]
        return events

    def _tell(self, whole: _Whole) -> list[Event]:
        self._split(whole)
        events: list[Event] = []
        for part, following in itertools.pairwise([*whole.parts, None]):
            assert part is not None
            events += self._part(whole.update, part, following)
        return events

    def _split(self, whole: _Whole) -> None:
        """New parts where the speaker changes between committed words."""
        for part, following in itertools.pairwise([*whole.parts, None]):
            assert part is not None
            if part.frozen:
                continue
            words = whole.update.words[part.first : following.first if following else None]
            for first in self._changes(words):
                whole.parts.append(_Part(part.first + first, next(self._ids)))
        whole.parts.sort(key=lambda part: part.first)

    def _changes(self, words: Sequence[Word]) -> list[int]:
        """Indices of words that begin another speaker's turn. Words of nobody known, or too short to be
        sure of, stay with the words before them."""
        settled = self._speakers.heard - SETTLED
        known = [
            (index, word.end - word.start, who.speaker)
            for index, word in enumerate(words)
            if word.end <= settled and (who := self._speakers.who(word.start, word.end)).speaker is not None
        ]
        turns = [list(turn) for _, turn in itertools.groupby(known, key=lambda item: item[2])]
        turns = [turn for turn in turns if sum(length for _, length, _ in turn) >= SHORTEST]
        return [turn[0][0] for before, turn in itertools.pairwise(turns) if before[0][2] != turn[0][2]]

    def _part(self, whole: SegmentUpdated, part: _Part, following: _Part | None) -> list[Event]:
        """The news of one part, if there is any."""
        words = whole.words[part.first : following.first if following else None]
        start = words[0].start if part.first else whole.start
        end = words[-1].end if following else whole.end
        before = part.who
        newly_frozen = False
        if not part.frozen:
            part.who = self._speaker(words) if words else self._speakers.who(start, end)
            newly_frozen = part.frozen = whole.final and end <= self._speakers.frozen
        update = replace(
            whole,
            segment=part.id,
            revision=0,
            first_word=whole.first_word + part.first,
            start=start,
            end=end,
            words=words,
            partial=() if following else whole.partial,
            final=whole.final or following is not None,
        )
        events: list[Event] = []
        told = update != part.shown
        if told:
            part.shown = update
            part.revision += 1
            events.append(replace(update, revision=part.revision, speaker=part.who.speaker))
        if newly_frozen or (before.speaker != part.who.speaker and not told):
            part.revision += 1
            events.append(
                SpeakerRevised(part.id, part.revision, part.who.speaker, part.frozen, part.who.score)
            )
        return events

    def _speaker(self, words: Sequence[Word]) -> Who:
        """Who says most of the words, by time."""
        said: defaultdict[int, int] = defaultdict(int)
        scores: defaultdict[int, list[float]] = defaultdict(list)
        for word in words:
            who = self._speakers.who(word.start, word.end)
            if who.speaker is not None:
                said[who.speaker] += word.end - word.start
                scores[who.speaker] += [] if who.score is None else [who.score]
        if not said:
            return UNKNOWN
        most = max(said, key=lambda speaker: (said[speaker], -speaker))
        found = scores[most]
        return Who(most, sum(found) / len(found) if found else None, overlap=False)


class Numbered:
    """Segments of a session whose speaker is known or not asked for: they only get their numbers."""

    def __init__(self, ids: Iterator[int], *, track: int | None = None, speaker: int | None = None) -> None:
        self._ids = ids
        self._track = track
        self._speaker = speaker
        self._open: dict[int, int] = {}

    def receive(self, update: SegmentUpdated) -> list[Event]:
        """The next state of a segment; what readers are to be told."""
        id = self._open.get(update.segment)
        if id is None:
            id = self._open[update.segment] = next(self._ids)
        if update.final:
            del self._open[update.segment]
        return [replace(update, segment=id, track=self._track, speaker=self._speaker)]

    def review(self) -> list[Event]:
        """Nothing is ever revised."""
        return []
