"""The append-only words of one track, and which segment shows each. PURE: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Iterator

from streaming.wire.messages import Segment, Word


class Transcript:
    """Words by index. A word stays what it was and stays with its segment, but for a split: then the last
    words of one segment move to segments nobody knew, which come before any later words."""

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.arrivals: list[int] = []
        """Of every word: how many words of the whole stream came before it."""
        self.revised = 0
        """Committed words that a later message changed, took back for good or gave to another segment."""
        self._owners: list[int] = []
        self._moving: list[int] = []
        self._source = ""

    @property
    def moving(self) -> int:
        """Words that a segment let go and no other has taken yet."""
        return len(self._moving)

    @property
    def loss(self) -> str:
        """What is wrong while words are on the move."""
        return f"{self._source} took committed words back: {len(self._moving)} from word {self._moving[0]}"

    def settle(self) -> None:
        """The words on the move are lost."""
        self.revised += len(self._moving)
        self._moving = []

    def passed_by(self, segment: Segment, *, known: bool) -> bool:
        """Whether a segment comes, with words, that may not come before the words on the move are taken; nor
        may one that was `known` take them."""
        first, next = segment.first_word, self._moving[0]
        return bool(segment.words) and (first > next or (known and first == next))

    def receive(self, segment: Segment, name: str, before: int) -> Iterator[str]:
        """Take the segment's words, those that are new included; yields what is wrong with them. `before` of
        its words were known as its own."""
        for index, word in enumerate(segment.words, segment.first_word):
            if index == len(self.words):
                self.words.append(word)
                self._owners.append(segment.id)
            elif index > len(self.words):
                yield f"{name} skips to word {index} after {len(self.words)}"
                return
            elif fault := self._again(segment.id, index, word):
                self.revised += 1
                yield f"{name} {fault}"
        if before > len(segment.words):
            left = range(segment.first_word + len(segment.words), segment.first_word + before)
            self._moving = sorted({*self._moving, *left})
            self._source = name

    def _again(self, id: int, index: int, word: Word) -> str | None:
        known = self.words[index]
        if known != word:
            return f"changed committed word {index}: {known.text!r} to {word.text!r}"
        if self._owners[index] == id:
            return None
        if index in self._moving[:1]:
            self._owners[index] = id
            del self._moving[0]
            return None
        return f"shows word {index}, which segment {self._owners[index]} has"
