"""From the session's segments and voice activity to the items of OpenAI Realtime: which words belong to which
turn, and when a turn is complete. Pure.

A turn ends with the speech, where the server tells turns apart, or when the client commits. Words go to turns
in their order, each once, and none is lost: what comes after its turn was completed begins another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from streaming.wire.lines import flowing, joined
from streaming.wire.messages import Activity, Gap, Named, Segment, Speaker
from streaming.wire.telling import Telling

from .openai_segments import Segments
from .openai_shapes import Event, item

TRANSCRIPTION = "conversation.item.input_audio_transcription"

PADDING_MS = 250
"""A segment may begin so long before its speech was noticed; the pause between two turns is longer."""

WAIT_MS = 10_000
"""Speech of which no word came so long after its end has none."""


@dataclass(slots=True)
class Item:
    """One turn; milliseconds."""

    id: str
    start: int
    end: int | None = None
    """Where its speech ended; None while it goes on, or is for the client to end."""
    speaking: bool = False
    """Whether the beginning of its speech was told."""
    until: str = ""
    """The flush that makes it complete, where the client ended it."""
    dropped: bool = False
    """Whether the client wants nothing of it."""
    text: str = ""
    lost: str = ""
    """Why a part of it has no text."""

    @property
    def open(self) -> bool:
        return self.end is None and not self.until


class Items:
    """One client's."""

    def __init__(self, session: str) -> None:
        """Of a session with this id."""
        self.detecting = False
        """Whether turns end with the speech."""
        self._session = session
        self._items: deque[Item] = deque()
        """Turns that are not complete, in order; only the last may be open."""
        self._made = 0
        self._previous: str | None = None
        """The item that was committed last."""
        self._edge = 0
        """Everything before it belongs to turns that were ended."""
        self._telling = Telling()
        self._segments = Segments()
        self._pending: dict[int, int] = {}
        """Segments that were shown and are not final, and their beginnings."""
        self._decided = 0
        """The end of the last final segment."""
        self._clock = 0

    # -- the client ------------------------------------------------------------------------------

    def commit(self, flush: str) -> Iterator[Event]:
        """The turn ends here; `flush` is asked for, and its answer completes the turn."""
        turn = self._current() or self._new(self._edge)
        turn.until = flush
        yield from self._committed(turn)

    def clear(self, flush: str) -> Iterator[Event]:
        """What was said since the last turn is not wanted."""
        turn = self._current() or self._new(self._edge)
        turn.until, turn.dropped = flush, True
        yield "input_audio_buffer.cleared", {}

    # -- the session -----------------------------------------------------------------------------

    def activity(self, news: Activity) -> Iterator[Event]:
        """Speech began, or stopped. News that was outdated before it could be sent is missing."""
        if not self.detecting:
            return
        turn = self._current()
        if news.speaking:
            if turn is not None and turn.speaking:
                yield from self._stopped(turn, news.at_ms)
                turn = None
            yield from self._started(turn or self._new(news.at_ms))
        else:
            yield from self._stopped(turn or self._new(self._edge), news.at_ms)
        yield from self._settle()

    def segment(self, segment: Segment) -> Iterator[Event]:
        """Its words that are new, as deltas; they do not change any more."""
        if segment.final:
            self._pending.pop(segment.id, None)
            self._decided = max(self._decided, segment.end_ms)
        else:
            self._pending[segment.id] = segment.start_ms
        words = self._telling.tell(segment)
        if words:
            at = self._place(segment.start_ms)
            for earlier in [self._items.popleft() for _ in range(at)]:
                yield from self._complete(earlier)
            turn = self._items[0]
            self._segments.own(segment.first_word + len(segment.words), None if turn.dropped else turn.id)
            delta = flowing(words) if turn.text else joined(words)
            turn.text += delta
            if not turn.dropped:
                yield f"{TRANSCRIPTION}.delta", {"item_id": turn.id, "content_index": 0, "delta": delta}
        self._segments.take(segment)
        yield from self._segments.release(self._clock)
        yield from self._settle()

    def speaker(self, news: Speaker | Named) -> Iterator[Event]:
        """Who spoke is known now, or what somebody is called."""
        self._segments.revise(news)
        yield from self._segments.release(self._clock)

    def gap(self, gap: Gap) -> None:
        """A stretch that has no text."""
        self._items[self._place(gap.start_ms)].lost = gap.cause

    def arrived(self, clock: int) -> Iterator[Event]:
        """All audio before `clock` (ms) is there."""
        self._clock = max(self._clock, clock)
        yield from self._segments.release(self._clock)
        yield from self._settle()

    def flushed(self, flush: str, clock: int) -> Iterator[Event]:
        """Everything before `clock` (ms) is final, as was asked for."""
        self._pending.clear()
        while any(turn.until == flush for turn in self._items):
            turn = self._items.popleft()
            turn.end = clock if turn.end is None else turn.end
            yield from self._complete(turn)
        self._edge = max(self._edge, clock)
        for turn in self._items:
            turn.start = max(turn.start, clock)

    def rest(self, clock: int) -> Iterator[Event]:
        """The session is over at `clock` (ms): everything that was said, and who said it."""
        self._clock = max(self._clock, clock)
        while self._items:
            turn = self._items.popleft()
            if turn.open and not (turn.text or turn.lost):
                continue
            if turn.open:
                yield from self._committed(turn)
            turn.end = max(turn.start, self._clock) if turn.end is None else turn.end
            yield from self._complete(turn)
        yield from self.named()

    def named(self) -> Iterator[Event]:
        """All segments, though it is not known yet who spoke."""
        yield from self._segments.release(self._clock, all=True)

    # -- turns -----------------------------------------------------------------------------------

    def _current(self) -> Item | None:
        return self._items[-1] if self._items and self._items[-1].open else None

    def _new(self, start: int) -> Item:
        self._made += 1
        self._items.append(turn := Item(f"item_{self._session}_{self._made}", start))
        return turn

    def _place(self, start: int) -> int:
        """Index of the turn to which a segment belongs that begins there."""
        ended = next((at for at, turn in enumerate(self._items) if turn.until), len(self._items) - 1)
        found = 0
        for at, turn in enumerate(islice(self._items, ended + 1)):
            if at == 0 or turn.start - PADDING_MS <= start:
                found = at
        if self._items:
            turn = self._items[found]
            past = turn.end is not None and not turn.until and start > turn.end
            if not past or found + 1 < len(self._items):
                return found
        self._new(start if self.detecting else self._edge)
        return len(self._items) - 1

    def _started(self, turn: Item) -> Iterator[Event]:
        turn.speaking = True
        yield "input_audio_buffer.speech_started", {"audio_start_ms": turn.start, "item_id": turn.id}

    def _stopped(self, turn: Item, at: int) -> Iterator[Event]:
        if not turn.speaking:
            yield from self._started(turn)
        turn.end = max(at, turn.start)
        self._edge = max(self._edge, turn.end)
        yield "input_audio_buffer.speech_stopped", {"audio_end_ms": turn.end, "item_id": turn.id}
        yield from self._committed(turn)

    def _committed(self, turn: Item) -> Iterator[Event]:
        before, self._previous = self._previous, turn.id
        place = {"previous_item_id": before}
        yield "input_audio_buffer.committed", {"item_id": turn.id, **place}
        yield "conversation.item.added", {"item": item(turn.id, "in_progress", None), **place}

    def _settle(self) -> Iterator[Event]:
        """Complete the turns of which no more words will come."""
        while self._items:
            turn = self._items[0]
            if turn.end is None or turn.until or any(start < turn.end for start in self._pending.values()):
                return
            if self._decided < turn.end and self._clock < turn.end + WAIT_MS:
                return
            yield from self._complete(self._items.popleft())

    def _complete(self, turn: Item) -> Iterator[Event]:
        if turn.dropped:
            return
        yield from self._segments.release(self._clock)
        where = {"item_id": turn.id, "content_index": 0}
        if turn.lost:
            error = {
                "type": "transcription_error",
                "code": turn.lost,
                "message": "a part of this turn could not be decoded: what is missing was not heard",
                "param": None,
            }
            yield f"{TRANSCRIPTION}.failed", {**where, "error": error}
        if turn.text or not turn.lost:
            seconds = max(0, (turn.end or 0) - turn.start) / 1000
            usage = {"type": "duration", "seconds": seconds}
            yield f"{TRANSCRIPTION}.completed", {**where, "transcript": turn.text, "usage": usage}
        yield "conversation.item.done", {"item": item(turn.id, "completed", turn.text)}
