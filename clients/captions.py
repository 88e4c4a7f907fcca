"""Messages to what a reader sees. PURE: no clock, no I/O.

The reducer believes nothing: it checks what the protocol promises and keeps every breach in `faults`, so
that a client, a test or a bench can say that committed words did not change instead of hoping so.
"""

from __future__ import annotations

from msgspec.structs import replace

from streaming.wire.messages import (
    Ack,
    Ended,
    Error,
    Flushed,
    Gap,
    Named,
    Ready,
    Receipt,
    Segment,
    ServerMessage,
    Speaker,
    Word,
)
from streaming.wire.render import columns, joined

_MAX_FAULTS = 100


class Captions:
    """The present state of one stream. Feed every server message, in order, to `receive`."""

    def __init__(self) -> None:
        self.ready: Ready | None = None
        self.segments: dict[int, Segment] = {}
        """Newest revision of every segment by id, in the order in which they opened."""
        self.names: dict[int, str] = {}
        """Names of speakers by number, where they have one."""
        self.transcript: list[Word] = []
        """All committed words; only ever appended to."""
        self.revised = 0
        """Committed words that a later message changed or took back: a kept promise is 0."""
        self.faults: list[str] = []
        """Breaches of the protocol's promises, oldest first, at most a hundred."""
        self.gaps: list[Gap] = []
        self.flushed: list[Flushed] = []
        self.acknowledged = 0
        """Samples (16 kHz) that the server has."""
        self.receipt: Receipt | None = None
        self.error: Error | None = None
        self._seq: int | None = None

    @property
    def ended(self) -> bool:
        """Whether the receipt or the error has come: no more text follows, at most the error."""
        return self.receipt is not None or self.error is not None

    @property
    def committed(self) -> str:
        """All committed text."""
        return joined(self.transcript)

    @property
    def partial(self) -> str:
        """What may still change: stands right behind the committed text."""
        text = ""
        for segment in self.segments.values():
            if segment.partial and not segment.final:
                before = text or (self.transcript[-1].text if self.transcript else "")
                # A segment without words yet cannot say whether its script has spaces.
                touches = (
                    segment.words or not before or columns(before[-1]) == columns(segment.partial[0]) == 2
                )
                text += segment.partial if touches else f" {segment.partial.lstrip()}"
        return text

    @property
    def language(self) -> str | None:
        """The language of the newest segment that names one."""
        named = (s.language for s in reversed(self.segments.values()) if isinstance(s.language, str))
        return next(named, self.ready.language if self.ready else None)

    def tail(self, words: int) -> str:
        """The last `words` committed words as they read."""
        return joined(self.transcript[-words:])

    def receive(self, message: ServerMessage) -> None:
        """Take the next message."""
        self._check_order(message)
        match message:
            case Ready():
                self._check(self.ready is None, "a second ready")
                self.ready = message
            case Segment():
                self._receive_segment(message)
            case Speaker(segment=id, rev=rev, speaker=speaker):
                known = self.segments.get(id)
                self._check(
                    known is not None and rev > known.rev, f"speaker rev {rev} of segment {id} is late"
                )
                if known is not None:
                    self.segments[id] = replace(known, rev=rev, speaker=speaker)
            case Named(speaker=number, name=name):
                self.names[number] = name
            case Ack():
                self._check(message.sample >= self.acknowledged, f"ack went back to {message.sample}")
                self.acknowledged = message.sample
            case Flushed():
                self.flushed.append(message)
            case Gap():
                self.gaps.append(message)
            case Ended():
                self.receipt = message.receipt
                self._check_receipt(message.receipt)
            case Error():
                self.error = message

    def _check(self, holds: object, fault: str) -> None:
        if not holds and len(self.faults) < _MAX_FAULTS:
            self.faults.append(fault)

    def _check_order(self, message: ServerMessage) -> None:
        # The receipt may be followed by the reason why the stream ended early.
        last = self.error is None and isinstance(message, Error)
        self._check(last or not self.ended, f"message {message.seq} came after the last one")
        if self._seq is not None:
            self._check(message.seq == self._seq + 1, f"seq {message.seq} follows {self._seq}")
        self._seq = message.seq

    def _receive_segment(self, new: Segment) -> None:
        name = f"segment {new.id} rev {new.rev}"
        old = self.segments.get(new.id)
        if old is not None:
            self._check(new.rev > old.rev, f"{name} follows rev {old.rev}")
            self._check(not old.final, f"{name} came after the final one")
            self._check(new.first_word == old.first_word, f"{name} moved its first word to {new.first_word}")
            self._check(len(new.words) >= len(old.words), f"{name} took committed words back")
            self.revised += max(0, len(old.words) - len(new.words))
        self._check(not (new.final and new.partial), f"{name} is final and still has a partial")
        self._check(new.text.strip() == joined(new.words), f"{name}: text differs from its words")
        self._check("\ufffd" not in new.text + new.partial, f"{name} holds a broken character")
        self._append(new, name)
        self.segments[new.id] = new

    def _append(self, new: Segment, name: str) -> None:
        """The transcript is append-only: a word at a known index must be the known word."""
        for index, word in enumerate(new.words, new.first_word):
            if index < len(self.transcript):
                if self.transcript[index] != word:
                    self.revised += 1
                    known = self.transcript[index].text
                    self._check(False, f"{name} changed committed word {index}: {known!r} to {word.text!r}")
            elif index == len(self.transcript):
                self.transcript.append(word)
            else:
                self._check(False, f"{name} skips to word {index} after {len(self.transcript)}")
                return

    def _check_receipt(self, receipt: Receipt) -> None:
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
        self._check(
            receipt.words == len(self.transcript),
            f"receipt: counts {receipt.words} words, {len(self.transcript)} came",
        )
