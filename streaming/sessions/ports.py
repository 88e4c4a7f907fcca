"""What sessions ask of those around them: clients, connections, whoever keeps what they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from streaming.kept.log import State
from streaming.wire.messages import Start


class Client(Protocol):
    """The connection that a session has, as it sees it. All return at once."""

    @property
    def behind(self) -> bool:
        """Whether so much waits to be read that it should send no more for now."""
        ...

    def acknowledge(self, sample: int, durable: int) -> None:
        """Everything before `sample` has arrived; comes every `TICK_S`."""
        ...

    def replace(self) -> None:
        """A newer connection has the session: part."""
        ...


class Stoppable(Protocol):
    """A connection, as the drain sees it."""

    def stop(self) -> None:
        """Close with `Restarting` if no session came about yet; returns at once."""
        ...


class Running(Protocol):
    """A session at work, as its keeper sees it."""

    async def run(self) -> None:
        """To its end; raises nothing but cancellation."""
        ...

    def stop(self) -> None:
        """Finish what was received, then end with `Restarting`; returns at once."""
        ...

    def give_up(self) -> None:
        """Declare what is not decoded yet a gap; returns at once."""
        ...

    def let_go(self) -> None:
        """Stop where it stands, for another process goes on; returns at once."""
        ...


class Recorder(Protocol):
    """Where what one session says is kept beyond this process. Never blocks."""

    def put(self, key: str, seq: int, state: State) -> None:
        """One change of the session's log, as `OnPut`."""
        ...

    def progress(self, settled: tuple[int, ...], received: int) -> None:
        """How far the session is, after all that was put before: `Meeting.settled`, `Meeting.received`."""
        ...

    def owner(self, key: str) -> None:
        """The name of the API key that the session counts against."""
        ...

    def voices(self, data: bytes) -> None:
        """What is known of the voices now: `remembering.encode`."""
        ...

    def durable(self, sample: int) -> int:
        """Of the samples before `sample`, all of which arrived: before which one nothing need be sent again
        even if this process dies."""
        ...

    async def on_disk(self, seq: int) -> None:
        """Return once a crash can take back nothing up to number `seq` (0: that it began), or it is no use to
        wait."""
        ...

    def discard(self) -> None:
        """The session never began."""
        ...

    def end(self) -> None:
        """The session lives no longer."""
        ...

    async def leave(self) -> None:
        """Return when all that was put is kept and another process may go on, or it is no use to wait."""
        ...


class Unrecorded:
    """Nothing outlives the process, and nobody waits."""

    def put(self, key: str, seq: int, state: State) -> None: ...

    def progress(self, settled: tuple[int, ...], received: int) -> None: ...

    def owner(self, key: str) -> None: ...

    def voices(self, data: bytes) -> None: ...

    def durable(self, sample: int) -> int:
        return sample

    async def on_disk(self, seq: int) -> None: ...

    def discard(self) -> None: ...

    def end(self) -> None: ...

    async def leave(self) -> None: ...


Journal = Callable[[str, bytes, bytes, Start], Recorder]
"""Begins to record a session: its id, the digests of its token and its read token, how it started."""


def unrecorded(session: str, token: bytes, read: bytes, start: Start) -> Recorder:
    """No journal."""
    return Unrecorded()


class Shared(Protocol):
    """The journal that other processes share."""

    @property
    def failing(self) -> bool:
        """Whether it takes nothing now."""
        ...

    def left(self, session: str) -> None:
        """This process has the session no more, not even as one that ended."""
        ...


class Peers(Protocol):
    """The other processes."""

    async def owner(self, session: str) -> str | None:
        """The address of the one that has the session, http://host:port; None where none has."""
        ...
