"""What a session said, as a compacted log: of everything its newest state only, each with the number at which
it changed last. Pure.

A reader is a cursor, the number of the newest message it has; it is given what is newer, in order. So one log
serves the client that is a little behind, the one that comes back after a lost connection, the reader that
has nothing yet and the transcript over HTTP; a slow reader gets the newest state, never a hole; and memory
is bounded by the transcript, not by its history. Numbers grow, with holes where a state was outdated.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from itertools import pairwise

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from streaming.wire.messages import (
    Activity,
    Ended,
    Error,
    Flushed,
    Gap,
    Named,
    Participant,
    Receipt,
    Segment,
    Speaker,
)
from streaming.wire.render import Turn, by_time

from .packed import pack, unpack
from .turns import Turns, joined

Said = Segment | Speaker | Named | Participant | Gap | Activity | Flushed | Ended | Error
"""What readers are told: everything on the wire that has a number of its own."""

State = Said | Turns
"""What is kept."""

OnPut = Callable[[str, int, State], None]
"""Told of each change: the key, its number from now on and its state. A key that comes again replaces what it
had; `Log.restore` takes the newest of every key, in order of their numbers."""

FLUSHES = 1024
"""So many answers to flushes are kept; a client cannot have more of them to come."""

_LAST = ("end", "error")
_SLACK = 64


def key_of(message: State, gaps: int, turns: int) -> str:
    """Under what a message is kept; `gaps` and `turns` are there already."""
    match message:
        case Segment(id=id):
            return f"segment:{id}"
        case Speaker(segment=id):
            return f"speaker:{id}"
        case Named(speaker=number):
            return f"named:{number}"
        case Participant(id=who):
            return f"participant:{who}"
        case Gap():
            return f"gap:{gaps}"
        case Turns():
            return f"turns:{turns}"
        case Activity(track=track):
            return "activity" if track is UNSET else f"activity:{track}"
        case Flushed(id=name):
            return f"flushed:{name}"
        case Ended():
            return "end"
        case Error():
            return "error"


class Log:
    """One session's. `on_put` hears of each change."""

    def __init__(self, on_put: OnPut | None = None) -> None:
        self._on_put = on_put
        self._states: dict[str, State | bytes] = {}
        self._numbers: dict[str, int] = {}
        self._order: list[tuple[int, str]] = []
        """Ascending; an entry is stale once its key has another number."""
        self._tracks: dict[int | UnsetType, list[tuple[int, int]]] = {}
        """Of each track the segments with words: index of the first word, id; ascending."""
        self._flushes: deque[str] = deque()
        self.names: dict[int, str] = {}
        """Names of speakers by number; empty where one was taken away."""
        self.participants: dict[str, Participant] = {}
        """Who was ever said to be there, by id."""
        self.speakers: set[int] = set()
        """Numbers of all who were ever said to speak."""
        self.gaps: list[Gap] = []
        self._turns: list[Turns] = []
        self.ended: Ended | None = None
        """None while the session lives."""
        self.seq = 0
        """The newest number."""

    def __len__(self) -> int:
        return len(self._numbers)

    def put(self, message: State) -> int:
        """Keep the message in place of the state it outdates; returns its number. Its own `seq` counts for
        nothing. What belongs behind it moves behind it."""
        key = key_of(message, len(self.gaps), len(self._turns))
        self._keep(key, message)
        number = self._number(key)
        if isinstance(message, Segment) and message.words:
            for later in self._later(message):
                self._speaker_is_known(later)
                self._number(f"segment:{later}")
        for last in _LAST if key not in _LAST else ():
            if last in self._numbers:
                self._number(last)
        if len(self._order) > 2 * len(self._numbers) + _SLACK:
            self._order = [entry for entry in self._order if self._numbers.get(entry[1]) == entry[0]]
        return number

    def restore(self, messages: Iterable[State]) -> None:
        """Take in what `on_put` told, the newest of each key in order of `seq`, with their numbers; of an
        empty log only. Nothing is told again."""
        assert not self._numbers, "a log is restored before anything is put"
        for message in messages:
            key = key_of(message, len(self.gaps), len(self._turns))
            self._keep(key, message)
            self.seq = self._numbers[key] = message.seq
            self._order.append((message.seq, key))
        assert all(a < b for a, b in pairwise(self._order)), "in order of seq"

    def whole(self) -> list[tuple[str, int, State]]:
        """All that `on_put` was told and that holds still."""
        return [(key, number, self.state(key)) for key, number in self._numbers.items()]

    def state(self, key: str) -> State:
        """The newest state with its number and the name its speaker has now; raises KeyError."""
        found = self._states[key]
        message = unpack(found) if isinstance(found, bytes) else found
        if isinstance(message, Segment | Speaker):
            name = "" if message.speaker is None else self.names.get(message.speaker, "")
            return replace(message, seq=self._numbers[key], name=name or UNSET)
        return replace(message, seq=self._numbers[key])

    def next(self, after: int) -> tuple[int, str] | None:
        """Number and key of the first state that is newer than `after`."""
        order = self._order
        for index in range(bisect_right(order, (after, "\U0010ffff")), len(order)):
            if self._numbers.get(order[index][1]) == order[index][0]:
                return order[index]
        return None

    def newer(self, after: int, most: int) -> int:
        """How many states are newer than `after`, counted up to `most`."""
        count = 0
        while count < most and (found := self.next(after)) is not None:
            count, after = count + 1, found[0]
        return count

    def flushes(self) -> set[str]:
        """Ids of the flushes that were answered."""
        return {key.removeprefix("flushed:") for key in self._flushes}

    def text_number(self, segment: int) -> int:
        """The number at which the segment's own state changed last."""
        return self._numbers[f"segment:{segment}"]

    @property
    def receipt(self) -> Receipt | None:
        """None while the session lives."""
        return self.ended.receipt if self.ended is not None else None

    def segments(self) -> list[Segment]:
        """The newest state of every segment, in order of time, with `seq` 0."""
        states = (self.state(key) for key in self._states if key.startswith("segment:"))
        return by_time(replace(s, seq=0) for s in states if isinstance(s, Segment))

    def turns(self) -> list[Turn]:
        """Who was heard when, as far as that is settled, by start, under the names they have now."""
        return joined(self._turns, self.names)

    def _number(self, key: str) -> int:
        self.seq += 1
        self._numbers[key] = self.seq
        self._order.append((self.seq, key))
        if self._on_put is not None:
            self._on_put(key, self.seq, self.state(key))
        return self.seq

    def _keep(self, key: str, message: State) -> None:
        match message:
            case Segment():
                self._heard(message.speaker)
                self._keep_segment(key, message)
                return
            case Speaker():
                self._heard(message.speaker)
                self._revise(message)
            case Named(speaker=number, name=name):
                self._heard(number)
                self.names[number] = name
            case Participant(id=who):
                self.participants[who] = message
            case Gap():
                self.gaps.append(message)
            case Turns():
                self._turns.append(message)
            case Flushed():
                self._keep_flush(key)
            case Ended():
                self.ended = message
        self._states[key] = message

    def _keep_segment(self, key: str, segment: Segment) -> None:
        self._speaker_is_known(segment.id)
        old = self._states.get(key)
        if old is not None and segment.frozen is UNSET:
            before = unpack(old) if isinstance(old, bytes) else old
            assert isinstance(before, Segment)
            segment = replace(segment, frozen=before.frozen)
        self._states[key] = pack(segment) if segment.final else segment
        place = (segment.first_word, segment.id)
        track = self._tracks.setdefault(segment.track, [])
        index = bisect_left(track, place)
        if segment.words and track[index : index + 1] != [place]:
            track.insert(index, place)

    def _later(self, segment: Segment) -> list[int]:
        """Ids of the segments of its track whose words come after its own, in order. Some reader may not have
        them yet, and words must not come after later ones."""
        track = self._tracks[segment.track]
        return [id for _, id in track[bisect_right(track, (segment.first_word, segment.id)) :]]

    def _speaker_is_known(self, segment: int) -> None:
        """The segment's state holds the speaker's news: nothing is left to be said."""
        self._states.pop(f"speaker:{segment}", None)
        self._numbers.pop(f"speaker:{segment}", None)

    def _revise(self, news: Speaker) -> None:
        """The segment's state has the newest speaker too, at its old number: whoever has not got it yet needs
        no news."""
        key = f"segment:{news.segment}"
        if key not in self._states:
            return
        old = self._states[key]
        segment = unpack(old) if isinstance(old, bytes) else old
        assert isinstance(segment, Segment)
        revised = replace(segment, rev=news.rev, speaker=news.speaker, frozen=news.frozen or UNSET)
        self._states[key] = pack(revised) if revised.final else revised

    def _keep_flush(self, key: str) -> None:
        if key in self._states:
            self._flushes.remove(key)
        elif len(self._flushes) >= FLUSHES:
            oldest = self._flushes.popleft()
            del self._states[oldest], self._numbers[oldest]
        self._flushes.append(key)

    def _heard(self, speaker: int | None) -> None:
        if speaker is not None:
            self.speakers.add(speaker)


class Cursor:
    """Where one reader is in a log: it has everything up to number `at`. One that names a number yet to come
    goes on from the log's end."""

    def __init__(self, log: Log, after: int = 0) -> None:
        self._log = log
        self.at = self._from = min(after, log.seq)
        self._known = log.seq
        """What was there at the beginning: segments that come from it bring their speakers' news along."""

    def take(self) -> Said | None:
        """The next message, None where there is none yet."""
        while (found := self._log.next(self.at)) is not None:
            self.at, key = found
            message = self._log.state(key)
            if isinstance(message, Turns):
                continue
            if not isinstance(message, Speaker) or not self._told(message):
                return message
        return None

    def behind(self, most: int) -> int:
        """How many messages wait, counted up to `most`."""
        return self._log.newer(self.at, most)

    def _told(self, news: Speaker) -> bool:
        return news.seq <= self._known and self._log.text_number(news.segment) > self._from
