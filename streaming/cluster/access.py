"""What keys use and the tokens that they made, counted and kept in Redis for all processes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from streaming.access.auth import Caller, TooManyTokens, fresh, room
from streaming.access.tokens import digest
from streaming.errors import Unreadable
from streaming.kept.asking import Asking
from streaming.kept.port import SessionStore

from .redis_store import RedisStore, executed

logger = logging.getLogger("seamscribe")


class SharedBooks:
    """As `quota.Books`. What a process that is taken for dead had counts no more."""

    def __init__(self, store: SessionStore) -> None:
        assert isinstance(store, RedisStore)
        self._store = store
        self._ask = Asking()

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        return self._store.failures

    async def seat(self, key: str, sessions: int, most: int) -> bool:
        return bool(await self._ask(self._store.run, "SEAT", key, self._store.process, sessions, most))

    async def tell(self, sessions: Mapping[str, int]) -> None:
        await self._ask(self._tell, sessions)

    async def used(self, day: int) -> Mapping[str, int]:
        return cast(Mapping[str, int], await self._ask(self._store.used, day, self._store.process))

    def _tell(self, sessions: Mapping[str, int]) -> None:
        pipe = self._store.redis.pipeline(transaction=False)
        for key, count in sessions.items():
            self._store.seats(pipe, key, count)
        executed(pipe)


class SharedTickets:
    """As `auth.Ticketing`."""

    def __init__(self, store: SessionStore, most: int) -> None:
        """At most so many tokens wait, of all processes."""
        assert isinstance(store, RedisStore)
        self._store = store
        self._ask = Asking()
        self._most = most

    async def mint(self, caller: Caller, seconds: float, prefix: str = "") -> str:
        token, said = fresh(prefix), msgspec.json.encode(caller)
        bounds = (round(seconds * 1000), self._most, room(self._most))
        if not await self._run("MINT", digest(token).hex(), caller.key, said, *bounds):
            raise TooManyTokens
        return token

    async def use(self, token: str) -> Caller | None:
        found = await self._run("USE", digest(token).hex())
        return None if found is None else msgspec.json.decode(found, type=Caller)

    async def _run(self, name: str, *arguments: Any) -> Any:
        try:
            return await self._ask(self._store.run, name, *arguments)
        except self._store.failures as error:
            logger.warning("tokens: cannot be asked for now (%(error)s)", {"error": error})
            raise Unreadable from error
