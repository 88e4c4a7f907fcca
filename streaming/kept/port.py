"""What the journal asks of a store, whatever keeps it.

Methods block, may be called from any thread, and have a deadline of their own. They raise one of `failures`
where the store cannot be used now. A store that several processes share fences them off: a session is written
by the process that claimed it last, and by no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .stored import Batch, Delivery, Stored, Summary


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a batch."""

    dropped: int = 0
    """Deliveries that went for want of room."""
    lost: frozenset[str] = frozenset()
    """Sessions of which nothing was written, for another process has claimed or deleted them."""
    missing: frozenset[str] = frozenset()
    """Sessions of which nothing was written, for the store has them no more."""


class SessionStore(Protocol):
    """Sessions, what they said, what webhooks are owed, what keys used. Times are milliseconds since 1970."""

    @property
    def shared(self) -> bool:
        """Whether other processes keep their sessions here too."""
        ...

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """What any method may raise while the store cannot be used."""
        ...

    def write(self, batch: Batch) -> Written:
        """Make it durable; of each session all or nothing."""
        ...

    def load(self, session: str) -> Stored | None:
        """All of one session; raises `Damaged`."""
        ...

    def claim(self, session: str, known: int | None = None) -> bool:
        """From now on this process writes the session, and no other does. Given `known`, of `unfinished`:
        only if nobody has claimed it since. False where somebody has, or it is there no more."""
        ...

    def unfinished(self) -> list[tuple[str, int]]:
        """Sessions that have not ended and that no living process has claimed, oldest first, each with what
        `claim` is to know."""
        ...

    def page(self, most: int, before: tuple[int, str] | None = None) -> list[Summary]:
        """Sessions, newest first; those after (`created`, id) in this order."""
        ...

    def delete(self, session: str) -> bool:
        """Remove every trace; False where there was none."""
        ...

    def expire(
        self, before: int, most_bytes: int, spare: frozenset[str], beside: Mapping[str, int] = ...
    ) -> list[str]:
        """Delete sessions that ended before `before`, and the oldest that ended beyond `most_bytes`; those in
        `spare` stay. `beside` is what sessions take up elsewhere. Returns the ids of what is gone."""
        ...

    def usage(self) -> list[tuple[int, str, int]]:
        """Of each day that is kept what each key used: day (since 1970), name, samples of audio."""
        ...

    def due(self, now: int, most: int, but: Sequence[str] = ()) -> list[Delivery]:
        """Deliveries to be tried, the longest due first; those in `but` are under way."""
        ...

    def next_due(self) -> int | None:
        """When the next delivery is to be tried; None where none waits."""
        ...

    def tried(self, id: str, again: int | None) -> None:
        """A delivery was tried: it is done with, or due `again`."""
        ...

    def close(self) -> None: ...
