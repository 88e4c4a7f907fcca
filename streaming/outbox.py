"""What waits to be sent to one client.

A slow reader gets the newest state of a segment, never a hole: a segment that waits already is replaced in
its place, so the box holds at most one message a segment and finals cannot be lost. A segment that goes on
where a waiting one ends stands right behind it, so that words which a split moves never come after later
ones. When `full`, the connection reads no more audio, and so nothing new is made.
"""

from __future__ import annotations

import asyncio
import itertools

import msgspec

from .wire.messages import Ack, Named, Segment, ServerMessage, Speaker

Key = tuple[str, int]


class Outbox:
    """Numbered when taken out, so `seq` has no holes. Not bounded by refusing (that would lose finals) but
    by its owner's pausing when `full`."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._waiting: dict[Key, ServerMessage] = {}
        self._order = itertools.count()
        self._seq = 0
        self._finished = False
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def seq(self) -> int:
        """Number of the last message taken."""
        return self._seq

    @property
    def full(self) -> bool:
        return len(self._waiting) >= self._capacity

    def put(self, message: ServerMessage) -> None:
        """Add a message, or replace the one it outdates. Its `seq` is set later. After `finish` nothing is
        taken any more."""
        if self._finished:
            return
        behind: Key | None = None
        match message:
            case Segment(id=id):
                key = ("segment", id)
                self._waiting.pop(("speaker", id), None)  # older than the segment's new state
                behind = self._before(message)
            case Speaker(segment=id):
                key = ("speaker", id)
            case Named(speaker=number):
                key = ("named", number)
            case Ack():
                key = ("ack", 0)
            case _:
                key = ("", next(self._order))
        if behind is not None and key not in self._waiting:
            self._insert(key, message, behind)
        else:
            self._waiting[key] = message
        self._changed.set()

    def _before(self, segment: Segment) -> Key | None:
        """The waiting segment at whose end this one goes on."""
        if not segment.words:
            return None
        for key, other in reversed(self._waiting.items()):
            if isinstance(other, Segment) and other.words and other.track == segment.track:
                end = other.first_word + len(other.words)
                if end == segment.first_word:
                    return key
        return None

    def _insert(self, key: Key, message: ServerMessage, behind: Key) -> None:
        waiting, self._waiting = self._waiting, {}
        for other, waits in waiting.items():
            self._waiting[other] = waits
            if other == behind:
                self._waiting[key] = message

    def finish(self) -> None:
        """Nothing more will be put: `take` gives what waits, then None."""
        self._finished = True
        self._changed.set()

    def discard(self) -> None:
        """The client is gone: forget what waits."""
        self._waiting.clear()
        self.finish()

    async def take(self) -> ServerMessage | None:
        """The next message with its `seq`; None when finished and empty."""
        while not self._waiting:
            if self._finished:
                return None
            self._changed.clear()
            await self._changed.wait()
        key = next(iter(self._waiting))
        message = self._waiting.pop(key)
        self._seq += 1
        return msgspec.structs.replace(message, seq=self._seq)
