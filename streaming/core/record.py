"""What readers see: segments, the append-only transcript behind them, and the account of every sample."""

from __future__ import annotations

from collections import deque

from engine.contract import Word

from .continuation import NOTHING, Continuation
from .events import Cover, Event, GapDeclared, Receipt
from .gate import Activity
from .ledger import Ledger
from .transcript import Segment, Transcript

SENTENCE_ENDS = frozenset(".?!…\u3002\uff1f\uff01")


class Record:
    """Segments not yet final, in order of time; those that are leave as events and ledger spans."""

    def __init__(self, activity: Activity, continues: Continuation = NOTHING) -> None:
        self._activity = activity
        self._ledger = Ledger(continues.spans)
        self._shown = 0  # segments numbered so far
        self._events: list[Event] = []
        self.transcript = Transcript(continues.words, continues.count)
        self.segments: deque[Segment] = deque()
        self.last_end = continues.settled
        """End of the last closed segment, samples."""

    def pending(self, now: int) -> int:
        """Where what is not final begins, samples; `now` where all is."""
        return self.segments[0].start if self.segments else now

    @property
    def torn(self) -> bool:
        """Whether the newest committed word ends where a cut ended it, so that its rest may follow."""
        return self.transcript.end == self.segments[0].start

    def split(self, at: int) -> None:
        """End the segment that is being spoken at sample `at` there; its rest is a segment of its own."""
        for i, segment in enumerate(self.segments):
            if segment.start < at and (segment.end is None or at < segment.end):
                rest = Segment(start=at, end=segment.end, voice_end=segment.voice_end)
                self.segments.insert(i + 1, rest)
                segment.end = segment.voice_end = at
                return

    def commit(self, segment: Segment, words: tuple[Word, ...]) -> None:
        """Append to the transcript, as part of `segment`."""
        if not words:
            return
        if not segment.words:
            segment.first_word = self.transcript.count
        segment.words.extend(words)
        self.transcript.append(words)

    def commit_open(self, words: tuple[Word, ...], length: int, *, now: int, language: str | None) -> Segment:
        """Append to the segment being spoken, and return the one that is spoken then: one that nobody ends
        with a pause is closed near its wished `length` (samples), at the end of a sentence if there is one.
        Words already shown in it stay in it."""
        segment = self.segments[0]
        for i, word in enumerate(words):
            sentence = word.text[-1:] in SENTENCE_ENDS
            if word.end - segment.start >= (length if sentence else 2 * length) and segment.end is None:
                self.commit(segment, words[: i + 1])
                segment.end = word.end
                self.segments.insert(1, Segment(start=word.end))
                self.close(now=now, language=language)
                return self.commit_open(words[i + 1 :], length, now=now, language=language)
        self.commit(segment, words)
        return segment

    def show(
        self,
        segment: Segment,
        partial: tuple[Word, ...],
        *,
        now: int,
        language: str | None,
        final: bool = False,
    ) -> None:
        """Tell the segment's present state, if somebody saw it before or there is something new to see."""
        unseen = segment.id is None and not segment.words and not partial
        same = partial == segment.partial and len(segment.words) == segment.told
        if unseen or (same and not final):
            return
        segment.partial = partial
        segment.told = len(segment.words)
        if segment.id is None:
            self._shown += 1
            segment.id = self._shown
        if not segment.words:
            segment.first_word = self.transcript.count
        self._events.append(segment.update(now, language, final=final))

    def close(self, *, now: int, language: str | None, cause: str | None = None) -> None:
        """The first segment is over: account for its audio and tell its final state.

        With a `cause`, voiced audio after its last word is a gap.
        """
        segment = self.segments.popleft()
        if segment.end is None:
            raise ValueError("a segment is closed once its end is known")
        self._ledger.cover(segment.start, Cover.SILENCE)
        heard = segment.words[-1].end if segment.words else segment.start
        lost = cause is not None and self._activity.voiced(heard, segment.end) > 0
        if segment.words:
            self._ledger.cover(min(heard, segment.end) if lost else segment.end, Cover.TEXT)
        if lost and cause is not None:
            start = self._ledger.covered
            self._ledger.cover(segment.end, Cover.GAP, cause)
            self._events.append(GapDeclared(start, segment.end, cause))
        self._ledger.cover(segment.end, Cover.SILENCE)
        self.last_end = segment.end
        self.show(segment, (), now=now, language=language, final=True)

    def tell(self, event: Event) -> None:
        """One more event, after those already there."""
        self._events.append(event)

    def drain(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def receipt(self, samples: int) -> Receipt:
        """The account of [0, samples) once no segment is open."""
        self._ledger.cover(samples, Cover.SILENCE)
        return Receipt(samples, self.transcript.count, self._ledger.spans)
