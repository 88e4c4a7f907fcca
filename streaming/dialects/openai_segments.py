"""Who said what, as OpenAI's `.segment` events tell it: each word once, so they wait until it is known who
spoke, for a while. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from msgspec import UNSET

from streaming.wire.messages import Named, Segment, Speaker
from streaming.wire.render import joined
from streaming.wire.telling import Telling

from .attribution import Unattributed
from .openai_shapes import Event, letters


class Segments:
    """One client's."""

    def __init__(self) -> None:
        self._telling = Telling()
        self._waiting = Unattributed()
        self._names: dict[int, str] = {}
        self._ends: list[int] = []
        """Index behind the last word of each item so far, ascending, and"""
        self._items: list[str | None] = []
        """the items; None: not wanted."""

    def own(self, end: int, item: str | None) -> None:
        """The words up to index `end` belong to this item."""
        if self._items and self._items[-1] == item:
            self._ends[-1] = end
        else:
            self._ends.append(end)
            self._items.append(item)

    def take(self, segment: Segment) -> None:
        """A segment's state: it waits once it is final."""
        if segment.final and self._telling.news(segment):
            self._waiting.add(segment)

    def revise(self, news: Speaker | Named) -> None:
        """Another speaker for a segment, or a name."""
        if isinstance(news, Named):
            self._names[news.speaker] = news.name
        else:
            self._waiting.revise(news)

    def release(self, clock: int, *, all: bool = False) -> Iterator[Event]:
        """Those that need wait no longer, in the order of their words: up to the first that has to."""
        for segment in self._waiting.release(clock, all=all):
            owner = self._item(segment.first_word + len(segment.words) - 1)
            words = self._telling.tell(segment)
            if words and owner is not None:
                yield (
                    "conversation.item.input_audio_transcription.segment",
                    {
                        "id": f"seg_{segment.id}",
                        "item_id": owner,
                        "content_index": 0,
                        "text": joined(words),
                        "speaker": self._name(segment),
                        "start": words[0].start_ms / 1000,
                        "end": words[-1].end_ms / 1000,
                    },
                )

    def _name(self, segment: Segment) -> str:
        given = "" if segment.name is UNSET else segment.name
        name = self._names.get(segment.speaker or 0, given)
        return name or letters(segment.speaker)

    def _item(self, word: int) -> str | None:
        at = bisect_right(self._ends, word)
        return self._items[at] if at < len(self._items) else None
