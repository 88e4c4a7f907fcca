"""This process among the others: it says every second that it lives, and learns what it missed while it did
not. The lease decides nothing by itself, for fences do: it only tells others whom it is worth to ask."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import cast

from streaming.background import background
from streaming.kept.asking import Asking
from streaming.kept.journal import Journal
from streaming.observe.hygiene import short

from .redis_store import PREFIX, RedisStore

logger = logging.getLogger("seamscribe")

BEAT_S = 1.0
LEASE_S = 4.0
"""Who has said nothing for so long is taken for dead."""

SURE_S = 10.0
"""So long, at most, it may take to learn what others did meanwhile."""


class Membership:
    """Of one process, in one event loop."""

    def __init__(self, journal: Journal, address: str) -> None:
        """`journal` is in Redis; `address` is where other processes reach this one: http://host:port."""
        assert isinstance(journal.store, RedisStore)
        self._store = journal.store
        self._journal = journal
        self._address = address
        self._ask = Asking()
        self._loop = asyncio.get_running_loop()
        self._knew = self._loop.time()
        self._beaten = asyncio.Event()

    async def owner(self, session: str) -> str | None:
        """The address of another living process that has the session; None where there is none, or nobody can
        tell now."""
        try:
            return cast(str | None, await self._ask(self._owner, session))
        except self._store.failures as error:
            logger.warning("cluster: cannot be asked who has a session (%(error)s)", {"error": error})
            return None

    async def sure(self) -> None:
        """Return once it is known which sessions others claimed while this process was frozen: at once where
        it was not, and where nobody can tell now, for then nobody can claim any either."""
        if self._loop.time() - self._knew < LEASE_S:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._beaten.wait(), SURE_S)

    @asynccontextmanager
    async def joined(self) -> AsyncIterator[None]:
        """Be one of them for as long as the block lasts."""
        await self._beat()
        self._journal.sure = self.sure
        try:
            async with background(self._run()):
                yield
        finally:
            with suppress(*self._store.failures):
                await asyncio.to_thread(self._store.redis.delete, self._key)

    @property
    def _key(self) -> str:
        return f"{PREFIX}p:{self._store.process}"

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            await self._beat()

    async def _beat(self) -> None:
        try:
            for session in await asyncio.to_thread(self._renew):
                logger.warning("session %(session)s goes on elsewhere", {"session": short(session)})
                self._journal.forget(session)
            self._journal.away = False
        except self._store.failures as error:
            if not self._journal.away:
                logger.warning("cluster: cannot say that this process lives (%(error)s)", {"error": error})
            self._journal.away = True
        self._knew = self._loop.time()
        self._beaten.set()
        self._beaten = asyncio.Event()

    def _renew(self) -> list[str]:
        """Renew the lease; sessions that others have claimed, where it had run out."""
        lease_ms = round(LEASE_S * 1000)
        held = self._store.redis.set(self._key, self._address, px=lease_ms, get=True)
        return [] if held is not None else self._store.taken()

    def _owner(self, session: str) -> str | None:
        owner = self._store.redis.hget(f"{PREFIX}s:{session}", "owner")
        if not owner or owner.decode() == self._store.process:
            return None
        address = self._store.redis.get(f"{PREFIX}p:{owner.decode()}")
        return None if address is None else str(address.decode())
