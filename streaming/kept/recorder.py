"""One session's way into the journal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from streaming.core.continuation import wanted

from .log import State
from .stored import Opened, Progress

if TYPE_CHECKING:
    from .journal import Journal

LEAVE_S = 5.0
"""So long what was said last may take to be written before another process goes on."""

HOLD_S = 0.25
"""So long a message waits to be on disk before it is sent; a disk that is slower holds up nobody."""


_ALL = 1 << 63
"""More than any number of a message."""


def resolve(future: asyncio.Future[Any], value: Any = None) -> None:
    """Have the future's owner go on, if somebody still waits."""
    if not future.done():
        future.set_result(value)


class Recorder:
    """Keeps what one session says. Of the event loop's side alone."""

    def __init__(
        self, journal: Journal, session: str, seq: int = 0, opened: Opened | None = None, key: str = ""
    ) -> None:
        """`opened` and `key` are those of the session, if it lives."""
        self._journal = journal
        self._session = session
        self._seq = seq
        self._opened, self._key = opened, key
        self._progress = Progress()
        self._durable = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._voices = b""
        self._lost = self._over = False

    def put(self, key: str, seq: int, state: State) -> None:
        """One change of the session's log, as `OnPut`."""
        if self._lost:
            return
        if self._journal.crowded:
            self._lost = True
            self._journal.lose(self._session)
            return
        self._journal.put(self._session, key, seq, state)

    def progress(self, settled: tuple[int, ...], received: int) -> None:
        """How far the session is, after all that was put before. Samples."""
        if not self._lost:
            self._progress = Progress(settled, received)
            self._journal.note(lambda fresh: fresh.progress, self._session, self._progress)

    def owner(self, key: str) -> None:
        """The name of the API key that the session counts against."""
        self._key = key
        self._journal.note(lambda fresh: fresh.keys, self._session, key)

    def voices(self, data: bytes) -> None:
        """What is known of the session's voices; written where it is news."""
        if not self._lost and data != self._voices:
            self._voices = data
            self._journal.note(lambda fresh: fresh.voices, self._session, data)

    def durable(self, sample: int) -> int:
        """Of the samples before `sample`, all of which arrived: before which one nothing need be sent again
        even if this process dies."""
        return min(self._durable, sample)

    async def on_disk(self, seq: int) -> None:
        """Return once everything up to number `seq` is on disk: then a crash cannot take back what was said.
        Not later than `HOLD_S`, and at once while the disk fails, but for what `Journal.sure` takes."""
        if seq <= self._seq or self._over:
            return
        if not self._journal.stuck:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((seq, waiter))
            done, _ = await asyncio.wait([waiter], timeout=HOLD_S)
            if seq <= self._seq or self._over:
                return
            if not done:
                waiter.cancel()
                self._journal.late()
        if self._journal.sure is not None:
            await self._journal.sure()

    def anew(self) -> None:
        """The store has lost the session: write it as if it began now, but for what it said."""
        assert self._opened is not None, "only what lives is written anew"
        self._journal.note(lambda fresh: fresh.opened, self._session, self._opened)
        self._journal.note(lambda fresh: fresh.keys, self._session, self._key)
        self._journal.note(lambda fresh: fresh.progress, self._session, self._progress)
        if self._voices:
            self._journal.note(lambda fresh: fresh.voices, self._session, self._voices)

    def discard(self) -> None:
        """The session never began: nothing is kept."""
        self._lost = True
        self._journal.discard(self._session)

    def end(self) -> None:
        """The session lives no longer; what is put from now on is kept too."""
        if not self._lost:
            self._journal.end(self._session)

    async def leave(self) -> None:
        """Nothing more is put. Return when another process can go on with the session, or after `LEAVE_S`."""
        self._journal.left(self._session)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((_ALL, waiter))
        await asyncio.wait([waiter], timeout=LEAVE_S)
        waiter.cancel()

    def taken(self) -> None:
        """Another process has the session now: nothing more is kept from here."""
        self._lost = True
        self.over()

    def over(self) -> None:
        """All of it is on disk, or never will be: nobody waits any more."""
        self._over = True
        self.release(all=True)

    def wrote(self, seq: int, progress: Progress | None) -> None:
        """Everything up to `seq` is on disk now."""
        self._seq = max(self._seq, seq)
        if progress is not None:
            self._durable = max(self._durable, wanted(min(progress.settled, default=0)))
        self.release()

    def release(self, *, all: bool = False) -> None:
        """Let go those who wait for what is on disk, or all."""
        for seq, waiter in self._waiters:
            if all or seq <= self._seq:
                resolve(waiter)
        self._waiters = [(seq, waiter) for seq, waiter in self._waiters if not waiter.done()]
