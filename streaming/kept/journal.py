"""What sessions say, on disk before anybody hears it: written by one thread, in groups.

The event loop only notes what changed, the newest state of each thing, so what waits is bounded by the
transcripts, and by `MOST_WAITING`. What one callback of the loop notes is written together or not at all. A
disk that fails or is slow stops nobody: `durable` stands still, a metric and one warning say so, and what
waits is tried again and again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from streaming.observe.hygiene import short
from streaming.observe.metrics import Metrics
from streaming.wire.messages import Start

from .log import State
from .port import SessionStore, Written
from .recorder import Recorder, resolve
from .stored import Batch, Delivery, Opened

logger = logging.getLogger("seamscribe")

GATHER_S = 0.01
"""News wait so long for more to be written with them."""

AGAIN_S = 1.0
"""Pause after the disk failed."""

MOST_WAITING = 100_000
"""States that may wait while the disk fails. Sessions with news beyond are not kept any further."""

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
Announce = Callable[[str, str, int, State], list[Delivery]]
"""What webhooks are owed for a change: session, key, number, state."""


class Journal:
    """Belongs to one event loop; `clock` gives seconds since 1970."""

    def __init__(
        self,
        store: SessionStore,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self._metrics = metrics
        self.announce: Announce | None = None
        self.taken: Callable[[str], None] | None = None
        """Told of sessions that another process has claimed."""
        self.whole: Callable[[str], list[tuple[str, int, State]] | None] | None = None
        """All that a session has said so far, as `put` is told it; None where it is not here."""
        self.away = False
        """Whether a shared store is not to be reached, so far as somebody looked who had nothing to write."""
        self.sure: Callable[[], Awaitable[None]] | None = None
        """Returns once this process knows which sessions others claimed while it was frozen, if it was."""
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._recorders: dict[str, Recorder] = {}
        self._fresh = Batch()
        self._scheduled = False
        self._failing = False
        self._behind = False
        self.written = asyncio.Event()
        """Set with each group written: there may be something to deliver."""
        # Shared with the thread, under the lock.
        self._lock = threading.Condition()
        self._waiting = Batch()
        self._orders: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._closing = False
        self._thread = threading.Thread(target=self._write_on, name="journal", daemon=True)

    def start(self) -> None:
        """Write from now on, until `close`."""
        self._metrics.journal_ok.set(1)
        self._thread.start()

    # -- the event loop's side -------------------------------------------------------------------

    def begin(self, session: str, token: bytes, read: bytes, start: Start) -> Recorder:
        """A session begins; `token` and `read` are the digests of its tokens."""
        opened = Opened(self.now(), token, read, start)
        self.note(lambda fresh: fresh.opened, session, opened)
        return self.go_on(session, -1, opened)

    def go_on(self, session: str, seq: int, opened: Opened, key: str = "") -> Recorder:
        """A session read back from the journal lives again; `seq` is the newest number on disk, `key` the
        API key that it counts against."""
        recorder = self._recorders[session] = Recorder(self, session, seq, opened, key)
        return recorder

    @property
    def live(self) -> frozenset[str]:
        """Sessions that are being recorded."""
        return frozenset(self._recorders)

    @property
    def failing(self) -> bool:
        """Whether the disk takes nothing now."""
        return self._failing or self.away

    @property
    def stuck(self) -> bool:
        """Whether the disk fails or is slow: nobody should wait for it."""
        return self._failing or self._behind

    @property
    def crowded(self) -> bool:
        """Whether nothing more may wait for the disk."""
        return self._failing and len(self._fresh) + len(self._waiting) >= MOST_WAITING

    def put(self, session: str, key: str, seq: int, state: State) -> None:
        """One change of a session's log."""
        self.note(lambda fresh: fresh.states, (session, key), (seq, state))
        # A name that somebody is given long after the end is no news of it.
        announce = self.announce if session in self._recorders else None
        for delivery in announce(session, key, seq, state) if announce else ():
            self.note(lambda fresh: fresh.deliveries, delivery.id, delivery)

    def note(self, part: Callable[[Batch], dict[K, V]], key: K, value: V) -> None:
        """Have it written, with all that this callback of the loop still notes: half of that must not reach
        the disk alone."""
        part(self._fresh)[key] = value
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._publish)

    def discard(self, session: str) -> None:
        """Forget a session that began in this callback of the loop."""
        self._recorders.pop(session, None)
        self._fresh.forget(session)

    def end(self, session: str) -> None:
        """The session lives no longer."""
        self.note(lambda fresh: fresh.ended, session, self.now())

    def left(self, session: str) -> None:
        """This process has the session no more: when all that was said is written, any other may have it."""
        if self.store.shared:
            self.note(lambda fresh: fresh.left, session, True)

    def forget(self, session: str) -> None:
        """Another process writes the session from now on: whoever waits for it here waits no more."""
        with self._lock:
            self._fresh.forget(session)
            self._waiting.forget(session)
        # Before anybody goes on who waited for the store: he would send what is not kept.
        if self.taken is not None:
            self.taken(session)
        if recorder := self._recorders.pop(session, None):
            recorder.taken()

    def lose(self, session: str) -> None:
        """A session is not recorded any further."""
        if recorder := self._recorders.pop(session, None):
            recorder.over()
        self._metrics.journal_lost.add()
        logger.error(
            "journal: session %(session)s is not kept any further: too much waits for the disk",
            {"session": short(session)},
        )

    def late(self) -> None:
        """The disk is slower than a message may wait."""
        self._metrics.journal_late.add()
        if not self.stuck:
            self._behind = True
            logger.warning("journal: the disk is slow; messages are sent before they are on it")

    def now(self) -> int:
        """Milliseconds since 1970."""
        return round(self._clock() * 1000)

    async def run(self, order: Callable[[], T]) -> T:
        """Carry out what changes the store, between two groups; raises what it raises."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._publish()
        with self._lock:
            self._orders.append((order, future))
            self._lock.notify()
        return await future

    async def delete(self, session: str) -> bool:
        """Remove every trace of a session that does not live; False where there was none."""

        def order() -> bool:
            with self._lock:
                self._waiting.forget(session)
            return self.store.delete(session)

        return await self.run(order)

    async def close(self) -> None:
        """Write what waits, once, and stop."""
        self._publish()
        with self._lock:
            self._closing = True
            self._lock.notify()
        await asyncio.to_thread(self._thread.join)
        self.store.close()

    def _publish(self) -> None:
        self._scheduled = False
        if not self._fresh:
            return
        fresh, self._fresh = self._fresh, Batch()
        with self._lock:
            self._waiting.add(fresh)
            self._lock.notify()

    def _wrote(self, batch: Batch, seqs: dict[str, int], written: Written) -> None:
        if self._failing:
            logger.warning("journal: the disk is back")
        self._failing = self._behind = False
        self._metrics.journal_ok.set(1)
        self._metrics.journal_writes.add()
        if written.dropped:
            self._metrics.webhooks.add(written.dropped, outcome="dropped")
        for session in written.lost:
            self.forget(session)
        again = {session for session in written.missing if self._anew(session, batch)}
        for session in {*batch.opened, *seqs, *batch.progress} - again:
            if recorder := self._recorders.get(session):
                recorder.wrote(seqs.get(session, 0), batch.progress.get(session))
        for session in {*batch.ended, *batch.left} - again:
            if recorder := self._recorders.pop(session, None):
                recorder.over()
        self.written.set()

    def _anew(self, session: str, batch: Batch) -> bool:
        """The store has no such session. Have all of one that is recorded here written anew; False where it
        is none, for it was deleted."""
        recorder = self._recorders.get(session)
        states = self.whole(session) if self.whole is not None else None
        if recorder is None or states is None:
            return False
        logger.warning(
            "journal: the store has lost session %(session)s: it is written anew", {"session": short(session)}
        )
        recorder.anew()
        for key, seq, state in states:  # nothing is announced again: webhooks were told, or wait below
            self.note(lambda fresh: fresh.states, (session, key), (seq, state))
        for delivery in batch.deliveries.values():
            if delivery.session == session:
                self.note(lambda fresh: fresh.deliveries, delivery.id, delivery)
        if session in batch.ended:
            self.note(lambda fresh: fresh.ended, session, batch.ended[session])
        if session in batch.left:
            self.note(lambda fresh: fresh.left, session, True)
        return True

    def _failed(self, error: Exception) -> None:
        self._metrics.journal_errors.add(cause=cause_of(error))
        self._metrics.journal_ok.set(0)
        if not self._failing:
            self._failing = True
            logger.warning(
                "journal: cannot be written (%(error)s): sessions go on, but would not outlive this process",
                {"error": error},
            )
        for recorder in self._recorders.values():
            recorder.release(all=True)

    # -- the thread's side -----------------------------------------------------------------------

    def _write_on(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._waiting or self._orders or self._closing)
                closing = self._closing
            if not closing:
                time.sleep(GATHER_S)
            written = self._write()
            self._carry_out()
            if closing:
                return
            if not written:
                with self._lock:
                    self._lock.wait_for(lambda: self._closing or self._orders, AGAIN_S)

    def _write(self) -> bool:
        with self._lock:
            batch, self._waiting = self._waiting, Batch()
        if not batch:
            return True
        try:
            written = self.store.write(batch)
        except self.store.failures as error:
            with self._lock:
                batch.add(self._waiting)
                self._waiting = batch
            self._tell(self._failed, error)
            return False
        seqs: dict[str, int] = {}
        for (session, _), (seq, _) in batch.states.items():
            seqs[session] = max(seqs.get(session, 0), seq)
        self._tell(self._wrote, batch, seqs, written)
        return True

    def _carry_out(self) -> None:
        while True:
            with self._lock:
                if not self._orders:
                    return
                order, future = self._orders.popleft()
            try:
                found = order()
            except Exception as error:  # noqa: BLE001 - whoever ordered it gets it
                self._tell(_fail, future, error)
            else:
                self._tell(resolve, future, found)

    def _tell(self, callback: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *arguments)


def cause_of(error: Exception) -> str:
    """Why the disk fails, in a word for the metric."""
    text = str(error).lower()
    for cause, sign in (
        ("full", "full"),
        ("full", "maxmemory"),
        ("locked", "locked"),
        ("read_only", "readonly"),
        ("io", "i/o"),
    ):
        if sign in text:
            return cause
    return "other"


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
