"""The sessions of this process: how many may live, who may come back to them, and those that ended lately."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streaming.access import tokens
from streaming.access.quota import Lease
from streaming.errors import Overloaded, ReadRefused, Restarting, ResumeRefused, StreamError
from streaming.kept.log import Log, State
from streaming.observe.tracing import UNTRACED, Trace
from streaming.settings import LimitSettings, ServerSettings
from streaming.wire.errors import CloseCode, WireError
from streaming.wire.messages import Named, Ready, Segment, Start

from .ports import Journal, Recorder, Running, Shared, Stoppable, Unrecorded, unrecorded

if TYPE_CHECKING:
    from .admission import Admission
    from .live import Live

GRACE_S = 2.0
"""What the drain leaves for sending the last receipts."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a session ended: what its connections are closed with."""

    code: int = CloseCode.NORMAL
    reason: str = "done"


MOVED = Outcome(CloseCode.RESTART, "restarting")
"""Of a session that another process goes on with: its client is to come back."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Entry:
    """One session and what it said."""

    id: str
    log: Log = field(default_factory=Log)
    token_digest: bytes = b""
    read_digest: bytes = b""
    ready: Ready | None = None
    """What its client was told at first, but for the tokens."""
    live: Live | None = None
    """The session at work; None once it has ended."""
    ended: float | None = None
    """Clock time, None while it lives."""
    outcome: Outcome | None = None
    """None while something may still be said."""
    renamer: Callable[[int, str], None] | None = None
    """Renames in the session while it lives; raises KeyError like `rename`."""
    recorder: Recorder = field(default_factory=Unrecorded)
    unheard: range = range(0)
    """Numbers that an earlier process may have sent, but that never reached the disk."""
    recording: bool = False  # a file: nobody speaks now
    moved: bool = False
    """Whether another process goes on with it."""
    guest: bool = False
    """Whether its client has no way to come back: of another protocol, or with audio that has no samples."""
    lease: Lease | None = None
    """Its place among the sessions of its key."""
    trace: Trace = UNTRACED
    readers: int = 0
    waiting: set[asyncio.Event] = field(default_factory=set)
    """Set whenever there is something new to send."""

    @property
    def elsewhere(self) -> bool:
        """Whether another process has the session, and may not know what waits here to be sent."""
        return self.moved and self.outcome is not None

    def put(self, message: State) -> None:
        """The session says something; where another process goes on with it, nobody hears it here."""
        if self.moved:
            return
        self.log.put(message)
        if isinstance(message, Segment):
            self.trace.committed(message.first_word + len(message.words))
        self._wake()

    def finish(self, outcome: Outcome) -> None:
        """Nothing more will be said."""
        self.outcome = outcome
        self._wake()

    def rename(self, speaker: int, name: str) -> None:
        """From now on, and for everything said before, `speaker` is called `name`; empty: by number again.

        Raises KeyError for a number that nobody has."""
        if self.renamer is not None:
            self.renamer(speaker, name)
        elif speaker in self.log.speakers:
            self.put(Named(0, speaker, name))
        else:
            raise KeyError(speaker)

    def release(self) -> None:
        """It counts no longer against its key."""
        if self.lease is not None:
            self.lease.close()

    def _wake(self) -> None:
        for event in self.waiting:
            event.set()


class Sessions:
    """Live sessions by id, and finished ones for `keep_finished_s`, `keep_finished` at most.

    Ids are unguessable: whoever knows one may read its transcript.
    """

    def __init__(
        self,
        server: ServerSettings,
        limits: LimitSettings,
        journal: Journal = unrecorded,
        door: Admission | None = None,
        shared: Shared | None = None,
    ) -> None:
        """`door` says when new sessions would harm those that run; None: never. `shared` is there where other
        processes can go on with sessions of this one."""
        self._server = server
        self._limits = limits
        self._journal = journal
        self._admission = door
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._live: dict[str, Entry] = {}
        self._running: dict[Running, asyncio.Task[None]] = {}
        self._finished: OrderedDict[str, Entry] = OrderedDict()
        self._connections: set[Stoppable] = set()
        self._draining = False
        self._seated = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def active(self) -> int:
        return len(self._live)

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def seated(self) -> int:
        """Connections that have a session, or read one."""
        return self._seated

    @contextmanager
    def seat(self) -> Iterator[None]:
        """A connection has a session, or reads one, for as long as the block lasts."""
        self._seated += 1
        try:
            yield
        finally:
            self._seated -= 1

    def join(self, connection: Stoppable) -> None:
        """A client connected; raises `Restarting` while draining."""
        if self._draining:
            raise Restarting
        self._connections.add(connection)
        self._empty.clear()

    def leave(self, connection: Stoppable) -> None:
        self._connections.discard(connection)
        self._look()

    def open(
        self,
        token: str | None = None,
        start: Start | None = None,
        guest: str | None = None,
        *,
        recording: bool = False,
    ) -> Entry:
        """A new live session, to which whoever has the token may come back, or `guest`: of this id, to which
        nobody does. Raises `Overloaded`, `Congested` or `Restarting`."""
        self._check_room()
        if self._admission is not None:
            self._admission.admit(recording=recording)
        entry = Entry(guest or tokens.fresh_id(), guest=guest is not None, recording=recording)
        if token is not None:
            entry.token_digest = tokens.digest(token)
            entry.read_digest = tokens.digest(tokens.read_token(token))
        entry.recorder = self._journal(entry.id, entry.token_digest, entry.read_digest, start or Start())
        entry.log = Log(entry.recorder.put)
        self._live[entry.id] = entry
        return entry

    def adopt(self, entry: Entry) -> None:
        """A session of an earlier process: it lives again if it has not ended, else it is kept for a while.
        Raises `Overloaded` and `Restarting`, whatever the load: that it may go on was promised."""
        if entry.outcome is None:
            self._check_room()
            self._live[entry.id] = entry
        else:
            self._keep(entry)

    def _check_room(self) -> None:
        if self._draining:
            raise Restarting
        if (full := self._full()) is not None:
            raise full

    def _full(self) -> Overloaded | None:
        if len(self._live) < self._limits.max_sessions:
            return None
        return Overloaded(len(self._live), round(self._limits.retry_after_s * 1000))

    def refusal(self, *, recording: bool = False) -> StreamError | None:
        """What a client that wants a new session would be told for want of room; None where there is some."""
        if (full := self._full()) is not None or self._admission is None:
            return full
        return self._admission.refusal(recording=recording)

    def host(self, entry: Entry, session: Running) -> None:
        """Run the session in a task of its own, whoever comes and goes; it is closed when it ends."""
        self._running[session] = asyncio.create_task(self._host(entry, session))
        self._empty.clear()

    def close(self, entry: Entry) -> None:
        """The session ended; its transcript stays for a while. Or another process has it now."""
        if self._live.get(entry.id) is entry:
            del self._live[entry.id]
        entry.renamer = entry.live = None
        entry.release()
        if entry.moved:
            entry.trace.end("moved", CloseCode.RESTART, None)
            return
        outcome = entry.outcome or Outcome()
        entry.trace.end(outcome.reason, outcome.code, entry.log.receipt)
        entry.recorder.end()
        self._keep(entry)

    def _keep(self, entry: Entry) -> None:
        entry.ended = self._loop.time()
        self._finished[entry.id] = entry
        self._forget()

    def discard(self, entry: Entry) -> None:
        """The session never began: nothing of it is kept, nor does it take a finished one's place."""
        del self._live[entry.id]
        entry.release()
        entry.recorder.discard()

    async def end(self, entry: Entry, reason: WireError) -> bool:
        """End a live session now: what is not decoded yet is a gap. False where it lives on all the same."""
        session = entry.live
        if session is None or (running := self._running.get(session)) is None:
            return entry.live is None
        session.fail(reason)
        session.give_up()
        await asyncio.wait([running], timeout=GRACE_S)
        return running.done()

    def remove(self, id: str) -> None:
        """Forget a session that has ended."""
        if self._finished.pop(id, None) is not None and self._shared is not None:
            self._shared.left(id)

    def taken(self, id: str) -> None:
        """Another process has claimed the session: nothing of it is here any more."""
        self._finished.pop(id, None)
        if (entry := self._live.pop(id, None)) is not None:
            self._let_go(entry)
            entry.finish(MOVED)

    def whole(self, id: str) -> list[tuple[str, int, State]] | None:
        """All that a session has said, as its recorder was told it; None where it is not here."""
        entry = self.find(id)
        return None if entry is None else entry.log.whole()

    def find(self, id: str) -> Entry | None:
        """A live or lately finished session."""
        self._forget()
        return self._live.get(id) or self._finished.get(id)

    def newest(self) -> Entry | None:
        """Of the sessions that live the one that began last; recordings are none."""
        live = (one for one in self._live.values() if one.live is not None and not one.recording)
        return next(reversed(list(live)), None)

    def resume(self, id: str, token: str) -> Entry:
        """The session with this id and token; raises `ResumeRefused`."""
        entry = self.find(id)
        if entry is None or not tokens.fits(token, entry.token_digest):
            raise ResumeRefused
        return entry

    def read(self, id: str, token: str) -> Entry:
        """The session that this token lets read; raises `ReadRefused`."""
        entry = self.find(id)
        kept = (entry.read_digest, entry.token_digest) if entry is not None else ()
        fits = [tokens.fits(token, digest) for digest in kept]  # both, in a time that tells nothing
        if entry is None or True not in fits:
            raise ReadRefused
        return entry

    async def drain(self, seconds: float) -> bool:
        """Take no more clients, stop all, wait. After `seconds` what is not decoded yet becomes a gap, so
        that every receipt still goes out; False where a client was there even after that."""
        self._draining = True
        for connection in list(self._connections):
            connection.stop()
        moving = [entry for entry in self._live.values() if self._can_move(entry)]
        for session in set(self._running) - {entry.live for entry in moving}:
            session.stop()
        await asyncio.gather(*map(self._hand_over, moving))
        if await self._emptied(seconds):
            return True
        for session in list(self._running):
            session.give_up()
        return await self._emptied(GRACE_S)

    def _can_move(self, entry: Entry) -> bool:
        return self._shared is not None and not self._shared.failing and not entry.guest and bool(entry.live)

    async def _hand_over(self, entry: Entry) -> None:
        """Have another process go on with the session, when its client comes back there."""
        self._let_go(entry)
        await entry.recorder.leave()
        entry.finish(MOVED)

    def _let_go(self, entry: Entry) -> None:
        entry.moved = True
        if entry.live is not None:
            entry.live.let_go()

    async def _host(self, entry: Entry, session: Running) -> None:
        try:
            await session.run()
        finally:
            del self._running[session]
            try:
                self.close(entry)
            finally:
                self._look()

    def _look(self) -> None:
        if not self._connections and not self._running:
            self._empty.set()

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
            self.remove(oldest.id)
