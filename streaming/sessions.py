"""The sessions of this process: how many may live, and the transcripts of those that ended lately."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from .errors import Overloaded, Restarting
from .settings import LimitSettings, ServerSettings
from .transcripts import Record
from .wire.messages import Named

GRACE_S = 2.0
"""What the drain leaves for sending the last receipts."""


class Stoppable(Protocol):
    """A connection, as the drain sees it."""

    def stop(self) -> None:
        """Finish what was received, then close with `Restarting`; returns at once."""
        ...

    def give_up(self) -> None:
        """Declare what is not decoded yet a gap and close; returns at once."""
        ...


@dataclass(slots=True, eq=False)
class Entry:
    """One session and what it said. `ended` is clock time, None while it lives."""

    id: str
    record: Record = field(default_factory=Record)
    ended: float | None = None
    renamer: Callable[[int, str], None] | None = None
    """Renames in the session while it lives, and tells its client; raises KeyError like `rename`."""

    def rename(self, speaker: int, name: str) -> None:
        """From now on, and for everything said before, `speaker` is called `name`; empty: by number again.

        Raises KeyError for a number that nobody has."""
        if self.renamer is not None:
            self.renamer(speaker, name)
        elif speaker in self.record.speakers:
            self.record.keep(Named(0, speaker, name))
        else:
            raise KeyError(speaker)


class Sessions:
    """Live sessions by id, and finished ones for `keep_finished_s`, `keep_finished` at most.

    Ids are unguessable: whoever knows one may read its transcript.
    """

    def __init__(self, server: ServerSettings, limits: LimitSettings) -> None:
        self._server = server
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._live: dict[str, Entry] = {}
        self._finished: OrderedDict[str, Entry] = OrderedDict()
        self._connections: set[Stoppable] = set()
        self._draining = False
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def active(self) -> int:
        return len(self._live)

    @property
    def draining(self) -> bool:
        return self._draining

    def join(self, connection: Stoppable) -> None:
        """A client connected; raises `Restarting` while draining."""
        if self._draining:
            raise Restarting
        self._connections.add(connection)
        self._empty.clear()

    def leave(self, connection: Stoppable) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    def open(self) -> Entry:
        """A new live session; raises `Overloaded` or `Restarting`."""
        if self._draining:
            raise Restarting
        if len(self._live) >= self._limits.max_sessions:
            raise Overloaded(len(self._live), round(self._limits.retry_after_s * 1000))
        entry = Entry(secrets.token_urlsafe(16))
        self._live[entry.id] = entry
        return entry

    def close(self, entry: Entry) -> None:
        """The session ended; its transcript stays for a while."""
        del self._live[entry.id]
        entry.renamer = None
        entry.ended = self._loop.time()
        self._finished[entry.id] = entry
        self._forget()

    def discard(self, entry: Entry) -> None:
        """The session never began: nothing of it is kept, nor does it take a finished one's place."""
        del self._live[entry.id]

    def find(self, id: str) -> Entry | None:
        """A live or lately finished session."""
        self._forget()
        return self._live.get(id) or self._finished.get(id)

    async def drain(self, seconds: float) -> bool:
        """Take no more clients, stop all, wait. After `seconds` what is not decoded yet becomes a gap, so
        that every receipt still goes out; False where a client was there even after that."""
        self._draining = True
        for connection in list(self._connections):
            connection.stop()
        if await self._emptied(seconds):
            return True
        for connection in list(self._connections):
            connection.give_up()
        return await self._emptied(GRACE_S)

    async def _emptied(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def _forget(self) -> None:
        limit = self._loop.time() - self._server.keep_finished_s
        while self._finished:
            oldest = next(iter(self._finished.values()))
            fits = len(self._finished) <= self._server.keep_finished
            if fits and (oldest.ended is None or oldest.ended > limit):
                return
            del self._finished[oldest.id]
