"""Sessions beyond this process: those of earlier ones that go on or are finished here, and what is kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from engine.contract import SAMPLE_RATE
from streaming.access import tokens
from streaming.errors import Expired, Unreadable
from streaming.kept.asking import Asking
from streaming.kept.journal import Journal
from streaming.kept.keptaudio import AudioKeeper
from streaming.kept.log import Log
from streaming.kept.recorder import Recorder
from streaming.kept.recordings import Recording, Recordings
from streaming.kept.restore import LIFE, Place, freeze, log_of, receipt, revive, skip
from streaming.kept.stored import Damaged, Stored, Summary
from streaming.observe.hygiene import short
from streaming.observe.metrics import Metrics
from streaming.settings import JournalSettings
from streaming.wire.errors import told
from streaming.wire.messages import Start

from .beginning import set_going
from .delays import count
from .registry import Entry, Outcome
from .services import Services, ready_for

logger = logging.getLogger("seamscribe")

Read = Callable[..., Awaitable[Any]]
"""Runs a blocking function with its arguments."""

T = TypeVar("T")

TEND_S = 3600.0
"""What is too old or too much is looked for this often,"""

LOOK_S = 60.0
"""and what was left alone at the most."""


class History:
    """Belongs to one event loop."""

    def __init__(
        self,
        journal: Journal,
        settings: JournalSettings,
        recordings: Recordings | None = None,
        read: Read = asyncio.to_thread,
        ask: Read | None = None,
    ) -> None:
        """`recordings` are those there are, an `AudioKeeper` where new ones are made; they are found with
        `read`, the store is asked with `ask`, by default an `Asking`."""
        self._recordings = recordings
        self._journal = journal
        self._settings = settings
        self._read = read
        self._ask = ask or Asking()
        self._failures: tuple[type[Exception], ...] = (TimeoutError, *journal.store.failures)
        self._reviving = asyncio.Lock()

    @property
    def journal(self) -> Journal:
        return self._journal

    def begin(self, id: str, token: bytes, read: bytes, start: Start) -> Recorder:
        """As `sessions.Journal`."""
        return self._journal.begin(id, token, read, start)

    @property
    def wanting(self) -> bool:
        """Whether what sessions say cannot be kept, though it must be (`journal.required`)."""
        return self._settings.required and self._journal.failing

    @property
    def audio(self) -> AudioKeeper | None:
        """Keeps the audio of sessions; None where it is not kept."""
        return self._recordings if isinstance(self._recordings, AudioKeeper) else None

    @property
    def still(self) -> asyncio.Lock:
        """While it is held no session of an earlier process begins to go on, or is finished."""
        return self._reviving

    # -- going on --------------------------------------------------------------------------------

    async def revive(self, id: str, token: str, next_sample: int, services: Services) -> None:
        """Have a session of an earlier process among those of this one, if it is kept and the token is one of
        its own: to go on where the client can (see `Resume`), or to be read. Raises `WireError`."""
        if services.limits.resume_s == 0 or services.sessions.find(id) is not None:
            return
        async with self._reviving:
            stored = await self._stored(id)
            if stored is None or services.sessions.find(id) is not None:
                return
            opened = stored.opened
            if not any(tokens.fits(token, kept) for kept in (opened.token, opened.read)):
                return
            # As it is once no other process writes it any more.
            if not await self._claim(id) or (stored := await self._stored(id)) is None:
                return
            try:
                if stored.ended is None:
                    self._go_on(stored, next_sample, services)
                else:
                    services.sessions.adopt(self._entry(stored, self._finished(stored), services))
            except BaseException:
                self._journal.left(id)
                raise

    async def _claim(self, id: str, known: int | None = None) -> bool:
        """As `SessionStore.claim`."""
        return await self._asked(self._journal.run(lambda: self._journal.store.claim(id, known)))

    async def _asked(self, answer: Awaitable[T]) -> T:
        """What the store answers; raises `Unreadable` where it cannot."""
        try:
            return await answer
        except self._failures as error:
            logger.warning("journal: cannot be read (%(error)s)", {"error": error})
            raise Unreadable from error

    def _go_on(self, stored: Stored, next_sample: int, services: Services) -> None:
        recorder = self._recorder(stored)
        log = log_of(stored, recorder.put)
        if log.ended is not None:
            recorder.end()
            services.sessions.adopt(self._entry(stored, log, services))
            return
        start, known = stored.opened.start, log.seq
        entry = replace(self._entry(stored, log, services), recorder=recorder, outcome=None)
        try:
            place = _revived(stored, log, next_sample, services.metrics)
            entry.unheard = range(known + 1, log.seq // LIFE * LIFE)
            if log.speakers and not start.tracks:
                freeze(log)
            services.sessions.adopt(entry)
        except BaseException:
            recorder.discard()
            raise
        lease = services.quotas.go_on(stored.key, stored.progress.received)
        set_going(entry, start, services, lease, place=place)
        at = {"session": short(entry.id), "at_s": place.clock / SAMPLE_RATE}
        logger.info("session %(session)s goes on from %(at_s).1f s", at)

    def _entry(self, stored: Stored, log: Log, services: Services) -> Entry:
        """One that has ended."""
        opened = stored.opened
        return Entry(
            stored.id,
            log,
            opened.token,
            opened.read,
            ready_for(stored.id, opened.start, services),
            outcome=Outcome(),
        )

    async def tend(self, services: Services) -> None:
        """Once the time for coming back is over, give what nobody came back to its receipt; delete what is
        too old or too much; again and again, without end."""
        loop, resume_s = asyncio.get_running_loop(), services.limits.resume_s
        expire_s = loop.time() + resume_s
        left: set[tuple[str, int]] = set()
        failures: tuple[type[Exception], ...] = (Unreadable, *self._failures)
        pause_s = resume_s
        while True:
            try:
                before, left = left, set(await self._ask(self._journal.store.unfinished))
                await self._conclude_all(sorted(left & before), resume_s, services.metrics)
                if loop.time() >= expire_s:
                    await self._expire()
                    expire_s = loop.time() + TEND_S
            except failures as error:
                logger.warning("journal: cannot be tended now (%(error)s)", {"error": error})
            await asyncio.sleep(pause_s)
            pause_s = max(resume_s, LOOK_S)

    async def _conclude_all(self, left: Sequence[tuple[str, int]], waited_s: float, metrics: Metrics) -> None:
        """Of sessions that nobody had when they were looked for twice, `waited_s` apart."""
        for id, known in left:
            async with self._reviving:
                if id in self._journal.live or not await self._claim(id, known):
                    continue
                if (stored := await self._stored(id)) is not None:
                    self._conclude(stored, waited_s, metrics)
                else:  # nobody can go on with it: it is kept as others are that ended, and goes with them
                    self._journal.end(id)

    def _conclude(self, stored: Stored, waited_s: float, metrics: Metrics) -> None:
        recorder = self._recorder(stored)
        log = log_of(stored, recorder.put)
        if log.ended is None:
            received = stored.progress.received
            ended = receipt(_revived(stored, log, received, metrics), received)
            count(metrics, ended)
            log.put(ended)
            log.put(told(Expired(waited_s), 0))
            logger.info(
                "session %(session)s of an earlier process was finished", {"session": short(stored.id)}
            )
        recorder.end()

    def _recorder(self, stored: Stored) -> Recorder:
        seq = max((state.seq for state in stored.states), default=0)
        recorder = self._journal.go_on(stored.id, seq, stored.opened, stored.key)
        recorder.wrote(seq, stored.progress)
        return recorder

    def _finished(self, stored: Stored) -> Log:
        """What an ended session said; names given to its speakers from now on are kept."""
        recorder = Recorder(self._journal, stored.id)
        recorder.over()
        return log_of(stored, recorder.put)

    async def _stored(self, id: str) -> Stored | None:
        """None where there is none, or the disk has damaged it, which takes no other session along."""
        try:
            return cast(Stored | None, await self._asked(self._ask(self._journal.store.load, id)))
        except Damaged as error:
            logger.error(
                "session %(session)s cannot be read back: %(why)s", {"session": short(id), "why": str(error)}
            )
            return None

    # -- what keys used --------------------------------------------------------------------------

    def use(self, day: int, key: str, samples: int) -> None:
        """As `quota.Note`."""
        self._journal.note(lambda fresh: fresh.usage, (day, key), samples)

    async def used(self) -> list[tuple[int, str, int]]:
        """As `Store.usage`."""
        return cast(list[tuple[int, str, int]], await self._ask(self._journal.store.usage))

    # -- what is kept ----------------------------------------------------------------------------

    async def log(self, id: str) -> Log | None:
        """What a session said, from the disk."""
        stored = await self._stored(id)
        return None if stored is None else self._finished(stored)

    async def digests(self, id: str) -> tuple[bytes, bytes] | None:
        """Of the token and the read token of a session on the disk."""
        stored = await self._stored(id)
        return None if stored is None else (stored.opened.token, stored.opened.read)

    async def page(self, most: int, before: tuple[int, str] | None) -> list[Summary]:
        """As `Store.page`."""
        return cast(list[Summary], await self._asked(self._ask(self._journal.store.page, most, before)))

    async def recording(self, id: str, received: int) -> Recording | None:
        """The audio of a session that received so many samples; raises as `Recordings.find`."""
        if self._recordings is None:
            return None
        return cast(Recording | None, await self._read(self._recordings.find, id, received))

    async def delete(self, id: str) -> bool:
        """Remove every trace of a session that does not live; False where there was none."""
        if self._recordings is not None:
            await self._recordings.delete(id)
        return await self._journal.delete(id)

    async def _expire(self) -> None:
        before, live = self._journal.now() - round(self._settings.keep_s * 1000), self._journal.live
        store, most, recordings = self._journal.store, self._settings.max_bytes, self._recordings
        sizes = await self._read(recordings.sizes) if recordings is not None else {}
        gone = await self._journal.run(lambda: store.expire(before, most, live, sizes))
        if recordings is not None:
            for id in gone:
                await recordings.delete(id)
        if gone:
            logger.info("journal: %(sessions)d old sessions were deleted", {"sessions": len(gone)})


def _revived(stored: Stored, log: Log, sample: int, metrics: Metrics) -> Place:
    """Where it goes on, from `sample` at the earliest; what is a gap for that is counted as one."""
    known = len(log.gaps)
    place = skip(revive(stored, log), log, sample, tracks=bool(stored.opened.start.tracks))
    for gap in log.gaps[known:]:
        count(metrics, gap)
    return place
