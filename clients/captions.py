"""Messages to what a reader sees. PURE: no clock, no I/O.

The reducer believes nothing: it checks what the protocol promises and keeps every breach in `faults`, so
that a client, a test or a bench can say that committed words did not change instead of hoping so.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from streaming.wire.lines import columns, joined
from streaming.wire.messages import (
    CLOCK_RATE,
    Ack,
    Ended,
    Error,
    Flushed,
    Gap,
    Named,
    Participant,
    Ready,
    Receipt,
    Segment,
    ServerMessage,
    Speaker,
    Word,
)
from streaming.wire.render import by_time, speaker_name

from .transcripts import Transcript

_MAX_FAULTS = 100


@dataclass(frozen=True, slots=True)
class Turn:
    """What one person says without another between, or one whom nobody knows."""

    speaker: int | None
    name: str | None
    """How the speaker is called."""
    text: str
    partial: str
    """What may still change: stands right behind the text."""


class Captions:
    """The present state of one stream. Feed every server message, in order, to `receive`."""

    def __init__(self) -> None:
        self.ready: Ready | None = None
        self.segments: dict[int, Segment] = {}
        """Newest revision of every segment by id, in the order in which they came; `ordered` is by time."""
        self.names: dict[int, str] = {}
        """Names of speakers by number, where they have one."""
        self.participants: dict[str, Participant] = {}
        """Who came or left, by id."""
        self.frozen: set[int] = set()
        """Segments whose speaker is not revised any more."""
        self.transcript: list[Word] = []
        """All committed words in the order in which they came; only ever appended to."""
        self.tracks: dict[int | UnsetType, Transcript] = {}
        """The same by track; without tracks there is one, UNSET."""
        self.gaps: list[Gap] = []
        self.flushed: list[Flushed] = []
        self.acknowledged = 0
        """Samples (16 kHz) that the server has."""
        self.durable = 0
        """Samples that it has on its disk, as far as it needs them to go on if it dies."""
        self.receipt: Receipt | None = None
        self.error: Error | None = None
        self.seq = 0
        """The greatest that came: where a reader goes on."""
        self._faults: list[str] = []

    @property
    def ended(self) -> bool:
        """Whether the receipt or the error has come: no more text follows, at most the error."""
        return self.receipt is not None or self.error is not None

    @property
    def faults(self) -> list[str]:
        """Breaches of the protocol's promises, oldest first, at most a hundred."""
        lost = [track.loss for track in self.tracks.values() if track.moving]
        return [*self._faults, *lost][:_MAX_FAULTS]

    @property
    def revised(self) -> int:
        """Committed words that a later message changed or took back: a kept promise is 0."""
        return sum(track.revised + track.moving for track in self.tracks.values())

    @property
    def committed(self) -> str:
        """All committed text."""
        if set(self.tracks) <= {UNSET}:
            return joined(self.transcript)
        return joined(word for segment in self.ordered() for word in segment.words)

    @property
    def partial(self) -> str:
        """What may still change: stands right behind the committed text."""
        text = ""
        for segment in self.ordered():
            before = text or (self.transcript[-1].text if self.transcript else "")
            text += _partial(segment, before)
        return text

    @property
    def exposed_s(self) -> float:
        """Seconds of audio that would be lost if the server died now. A few are usual; with a disk that is
        full they grow."""
        return (self.acknowledged - self.durable) / CLOCK_RATE

    @property
    def language(self) -> str | None:
        """The language of the newest segment that names one."""
        named = (s.language for s in reversed(self.segments.values()) if isinstance(s.language, str))
        return next(named, self.ready.language if self.ready else None)

    def ordered(self) -> list[Segment]:
        """The newest revision of every segment with the speaker's name, in order of time."""
        return by_time(map(self._named, self.segments.values()))

    def place(self, segment: Segment, index: int) -> int | None:
        """Where in `transcript` the word stands that is number `index` of the segment; None where it never
        came."""
        track, index = self.tracks.get(segment.track), segment.first_word + index
        return track.arrivals[index] if track is not None and 0 <= index < len(track.arrivals) else None

    def turns(self, words: int) -> list[Turn]:
        """The newest turns, oldest first: so many committed words at least, where there are so many."""
        newest: list[Segment] = []
        for segment in reversed(self.ordered()):
            if words <= 0:
                break
            newest.append(segment)
            words -= len(segment.words)
        turns: list[Turn] = []
        for segment in reversed(newest):
            said = segment.text.strip()
            if not said and not (segment.partial and not segment.final):
                continue
            turn = Turn(segment.speaker, speaker_name(segment), "", "")
            if turns and (turns[-1].speaker, turns[-1].name) == (turn.speaker, turn.name):
                turn = turns.pop()
            if said:
                text = joined([Word(turn.text, 0, 0), *segment.words])
                turn = Turn(turn.speaker, turn.name, text, turn.partial)
            partial = turn.partial + _partial(segment, turn.text + turn.partial)
            turns.append(Turn(turn.speaker, turn.name, turn.text, partial))
        return turns

    def receive(self, message: ServerMessage) -> None:
        """Take the next message."""
        self._check_order(message)
        if isinstance(message, Segment) and self._known(message):
            return
        self._settle(message)
        match message:
            case Ready():
                self._check(self.ready is None or message.resumed, "a second ready")
                self.ready = message
                if message.resumed:  # a server that died may want again what it had
                    self.acknowledged = min(self.acknowledged, message.next_sample)
            case Segment():
                self._receive_segment(message)
            case Speaker():
                self._receive_speaker(message)
            case Named(speaker=number, name=name):
                self.names[number] = name
            case Participant(id=who):
                self.participants[who] = message
            case Ack():
                self._check(message.sample >= self.acknowledged, f"ack went back to {message.sample}")
                self.acknowledged, self.durable = message.sample, message.durable
            case Flushed():
                self.flushed.append(message)
            case Gap():
                self.gaps.append(message)
            case Ended():
                self.receipt = message.receipt
                self._check_receipt(message)
            case Error():
                self.error = message

    def _named(self, segment: Segment) -> Segment:
        if segment.speaker not in self.names:
            return segment
        return replace(segment, name=self.names[segment.speaker] or UNSET)

    def _check(self, holds: object, fault: str) -> None:
        if not holds and len(self._faults) < _MAX_FAULTS:
            self._faults.append(fault)

    def _check_order(self, message: ServerMessage) -> None:
        # The receipt may be followed by the reason why the stream ended early.
        last = self.error is None and isinstance(message, Error)
        self._check(last or not self.ended, f"message {message.seq} came after the last one")
        if isinstance(message, Ready | Ack | Error):  # these have no number of their own
            self._check(message.seq >= self.seq, f"seq {message.seq} follows {self.seq}")
        else:
            self._check(message.seq > self.seq, f"seq {message.seq} follows {self.seq}")
        self.seq = max(self.seq, message.seq)

    def _settle(self, message: ServerMessage) -> None:
        """Words on the move are taken before any later ones come, or they are lost."""
        for track, transcript in self.tracks.items():
            if not transcript.moving:
                continue
            same = isinstance(message, Segment) and message.track == track
            known = isinstance(message, Segment) and message.id in self.segments
            if isinstance(message, Ended) or (
                same and isinstance(message, Segment) and transcript.passed_by(message, known=known)
            ):
                self._check(False, transcript.loss)
                transcript.settle()

    def _receive_speaker(self, news: Speaker) -> None:
        known = self.segments.get(news.segment)
        name = f"speaker rev {news.rev} of segment {news.segment}"
        again = known is not None and (news.rev, news.speaker) == (known.rev, known.speaker)
        self._check(known is not None and (again or news.rev > known.rev), f"{name} is late")
        if known is None or news.rev < known.rev:
            return
        if news.segment in self.frozen:
            same = news.frozen and news.speaker == known.speaker
            self._check(same, f"{name} changes a frozen one")
        if news.frozen:
            self.frozen.add(news.segment)
        self.segments[known.id] = replace(known, rev=news.rev, speaker=news.speaker, name=news.name)

    def _known(self, again: Segment) -> bool:
        """Whether a segment is not news: a reader that comes back may be shown it once more."""
        old = self.segments.get(again.id)
        if old is None or again.rev > old.rev:
            return False
        name = f"segment {again.id} rev {again.rev}"
        self._check(again.rev == old.rev, f"{name} follows rev {old.rev}")
        same = (again.words, again.partial, again.final) == (old.words, old.partial, old.final)
        self._check(again.rev < old.rev or same, f"{name} is not what it was")
        return True

    def _receive_segment(self, new: Segment) -> None:
        name = f"segment {new.id} rev {new.rev}"
        old = self.segments.get(new.id)
        if old is not None:
            self._check_successor(old, new, name)
        self._check(not (new.final and new.partial), f"{name} is final and still has a partial")
        self._check(new.text.strip() == joined(new.words), f"{name}: text differs from its words")
        self._check("\ufffd" not in new.text + new.partial, f"{name} holds a broken character")
        track = self.tracks.setdefault(new.track, Transcript())
        for fault in track.receive(new, name, len(old.words) if old else 0):
            self._check(False, fault)
        while len(track.arrivals) < len(track.words):
            track.arrivals.append(len(self.transcript))
            self.transcript.append(track.words[len(track.arrivals) - 1])
        self.segments[new.id] = new
        if new.frozen is True:
            self.frozen.add(new.id)

    def _check_successor(self, old: Segment, new: Segment, name: str) -> None:
        self._check(new.first_word == old.first_word, f"{name} moved its first word to {new.first_word}")
        self._check(new.track == old.track, f"{name} changed its track")
        self._check(new.words or not old.words, f"{name} took all of its committed words back")
        if old.final:
            kept = new.final and len(new.words) <= len(old.words)
            self._check(kept, f"{name} came after the final one")
        if old.id in self.frozen:
            self._check(new.speaker == old.speaker, f"{name} changes a frozen speaker")
            self._check(len(new.words) >= len(old.words), f"{name} splits what was frozen")

    def _check_receipt(self, end: Ended) -> None:
        receipt = end.receipt
        self._check_cover(receipt)
        self._check(
            receipt.words == len(self.transcript),
            f"receipt: counts {receipt.words} words, {len(self.transcript)} came",
        )
        for index, track in enumerate([] if end.tracks is UNSET else end.tracks):
            self._check_cover(track)
            came = len(self.tracks[index].words) if index in self.tracks else 0
            self._check(track.words == came, f"receipt: track {index}: {track.words} words, {came} came")

    def _check_cover(self, receipt: Receipt) -> None:
        at = 0
        covered = {"text": 0, "silence": 0, "gap": 0}
        for span in receipt.spans:
            self._check(span.start == at and span.end > span.start, f"receipt: a hole or overlap at {at}")
            self._check(span.cover in covered, f"receipt: unknown cover {span.cover!r}")
            covered[span.cover] = covered.get(span.cover, 0) + span.end - span.start
            at = span.end
        said = {"text": receipt.text_samples, "silence": receipt.silence_samples, "gap": receipt.gap_samples}
        self._check(at == receipt.samples, f"receipt: covers {at} of {receipt.samples} samples")
        self._check(covered == said, f"receipt: its sums {said} are not its spans' {covered}")


def _partial(segment: Segment, before: str) -> str:
    """What may still change of a segment, as it stands behind the text `before`."""
    if segment.final or not segment.partial:
        return ""
    # A segment without words yet cannot say whether its script has spaces.
    touches = segment.words or not before or columns(before[-1]) == columns(segment.partial[0]) == 2
    return segment.partial if touches else f" {segment.partial.lstrip()}"
