"""What keys use and the tokens that they made hold over processes: several of them in one test, over one real
Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from streaming.access.auth import Authority, Caller, TooManyTokens
from streaming.access.keys import Scope
from streaming.access.quota import DAY_S, KeyLimit, Quotas
from streaming.errors import Unreadable
from streaming.kept.stored import Batch
from tests.support.keys import ADMIN, KEYS, READ, SPEAK, key
from tests.support.redis import redis_server
from tests.support.waiting import until

pytest.importorskip("redis", reason="needs the extra redis")

from streaming.cluster.access import SharedBooks, SharedTickets
from streaming.cluster.redis_store import PREFIX, RedisStore

NOWHERE = "redis://127.0.0.1:9/0"
DAY = 5
MINUTE = 60 * 16_000


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with redis_server() as url:
        yield url


@dataclass
class Process:
    """One of several."""

    store: RedisStore
    quotas: Quotas
    authority: Authority

    def live(self) -> None:
        self.store.redis.set(f"{PREFIX}p:{self.store.process}", "http://here")

    def die(self) -> None:
        """Its lease has run out."""
        self.store.redis.delete(f"{PREFIX}p:{self.store.process}")

    async def exchanges(self) -> None:
        """Once what it does all the time."""
        task = asyncio.create_task(self.quotas.tend())
        await asyncio.sleep(0.1)
        task.cancel()


LIMITED = {"bot": key(SPEAK, Scope.SPEAK, max_sessions=3, minutes_a_day=2)}


@pytest.fixture
def processes(server: str) -> Iterator[list[Process]]:
    made = [process(server, name) for name in ("a", "b", "c")]
    made[0].store.redis.flushall()
    for one in made:
        one.live()
    yield made
    for one in made:
        one.store.close()


def process(url: str, name: str, most: int = 8) -> Process:
    store = RedisStore(url, name)

    def note(day: int, key: str, samples: int) -> None:
        store.write(Batch(usage={(day, key): samples}))

    quotas = Quotas(LIMITED, lambda: DAY * DAY_S, note, books=SharedBooks(store))
    return Process(store, quotas, Authority(KEYS, tickets=SharedTickets(store, most)))


async def test_a_key_has_so_many_sessions_in_all_processes(processes: list[Process]) -> None:
    one, two, three = (process.quotas for process in processes)
    leases = [await one.lease("bot"), await two.lease("bot"), await two.lease("bot")]
    for quotas in (one, two, three):
        with pytest.raises(KeyLimit, match="all 3 sessions of this key"):
            await quotas.lease("bot")
    assert [q.sessions("bot") for q in (one, two, three)] == [1, 2, 0], "a refused one takes no place"
    leases[2].close()
    await processes[1].exchanges()
    await three.lease("bot")
    with pytest.raises(KeyLimit):
        await one.lease("bot")


async def test_however_many_come_at_once_no_more_get_in(processes: list[Process]) -> None:
    tries = [process.quotas.lease("bot") for process in processes for _ in range(10)]
    found = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(not isinstance(one, KeyLimit) for one in found) == 3
    assert sum(process.quotas.sessions("bot") for process in processes) == 3


async def test_what_a_dead_process_had_counts_no_more_until_it_wakes(processes: list[Process]) -> None:
    one, two, _ = processes
    for _ in range(3):
        await one.quotas.lease("bot")
    one.die()
    await two.quotas.lease("bot")
    one.live()
    await one.exchanges()
    with pytest.raises(KeyLimit):
        await two.quotas.lease("bot")


async def test_a_key_has_so_many_minutes_in_all_processes(processes: list[Process]) -> None:
    one, two, three = processes
    first, second = await one.quotas.lease("bot"), await two.quotas.lease("bot")
    first.spend(MINUTE)
    await two.exchanges()
    second.spend(MINUTE - 1)
    with pytest.raises(KeyLimit, match="2 minutes"):
        second.spend(MINUTE)
    second.close()
    with pytest.raises(KeyLimit, match="2 minutes"):
        await three.quotas.lease("bot")
    await one.exchanges()
    with pytest.raises(KeyLimit, match="2 minutes"):
        first.spend(MINUTE + 1)
    # What others used is theirs to note: nothing is noted twice.
    assert dict(one.store.used(DAY)) == {"bot": 2 * MINUTE}


async def test_a_new_process_counts_what_was_used_before_it_once(
    processes: list[Process], server: str
) -> None:
    first = await processes[0].quotas.lease("bot")
    first.spend(MINUTE)
    first.close()
    later = process(server, "d")
    lease = await later.quotas.lease("bot")
    lease.spend(MINUTE - 1)
    lease.close()
    assert dict(later.store.used(DAY)) == {"bot": 2 * MINUTE - 1}
    later.store.close()


async def test_without_redis_each_process_counts_for_itself() -> None:
    quotas = Quotas(LIMITED, lambda: DAY * DAY_S, books=SharedBooks(RedisStore(NOWHERE, "a")))
    leases = [await quotas.lease("bot") for _ in range(3)]
    with pytest.raises(KeyLimit):
        await quotas.lease("bot")
    with pytest.raises(KeyLimit):
        leases[0].spend(2 * MINUTE)


async def test_while_redis_hangs_nobody_waits_for_it_again_and_again() -> None:
    class Hanging:
        failures = (TimeoutError,)

        def __init__(self) -> None:
            self.asked = 0
            self.late = asyncio.Event()

        async def hang(self) -> None:
            self.asked += 1
            await self.late.wait()
            self.late.clear()
            raise TimeoutError

        async def seat(self, key: str, sessions: int, most: int) -> bool:
            await self.hang()
            raise AssertionError

        async def tell(self, sessions: Mapping[str, int]) -> None:
            await self.hang()

        async def used(self, day: int) -> Mapping[str, int]:
            await self.hang()
            raise AssertionError

    books = Hanging()
    quotas = Quotas(LIMITED, lambda: DAY * DAY_S, books=books)
    tending = asyncio.create_task(quotas.tend())
    await until(lambda: books.asked == 1)
    first = asyncio.create_task(quotas.lease("bot"))
    await asyncio.sleep(0.05)
    assert not first.done(), "it may still answer"
    books.late.set()
    async with asyncio.timeout(30):
        await first
        await until(lambda: books.asked == 2)  # what is told again and again hangs
        await quotas.lease("bot")
    tending.cancel()


async def test_a_token_works_once_in_whichever_process(processes: list[Process]) -> None:
    one, two, three = (process.authority for process in processes)
    boss = await one.caller(ADMIN)
    assert boss is not None
    token = await one.mint(boss, Scope.READ, 60.0, "abc")
    assert await two.caller(token) == Caller("boss", frozenset({Scope.READ}), "abc")
    for authority in (one, two, three):
        assert await authority.caller(token) is None
    noted = await two.mint_for(boss, '{"a": 1}', 60.0, "ek_")
    assert noted.startswith("ek_")
    tries = await asyncio.gather(*(a.caller(noted) for a in (one, two, three) * 5))
    assert [t for t in tries if t] == [Caller("boss", frozenset({Scope.SPEAK}), note='{"a": 1}')]
    assert not any(token.encode() in name for name in processes[0].store.redis.scan_iter("*"))


async def test_a_token_expires_everywhere(processes: list[Process]) -> None:
    one, two, _ = (process.authority for process in processes)
    boss = await one.caller(ADMIN)
    assert boss is not None
    token = await one.mint(boss, Scope.READ, 0.05)
    await asyncio.sleep(0.1)
    assert await two.caller(token) is None


async def test_waiting_tokens_are_bounded_over_all_processes(processes: list[Process]) -> None:
    one, two, _ = (process.authority for process in processes)
    boss, reader = await one.caller(ADMIN), await one.caller(READ)
    assert boss is not None
    assert reader is not None
    used = await one.mint(boss, Scope.READ, 60.0)
    await two.mint(boss, Scope.READ, 0.05)
    for authority in (one, two):
        with pytest.raises(TooManyTokens):
            await authority.mint(boss, Scope.READ, 60.0)
    await two.mint(reader, Scope.READ, 60.0)
    await two.caller(used)
    await asyncio.sleep(0.1)
    for authority in (one, two):
        await authority.mint(boss, Scope.READ, 60.0)
    with pytest.raises(TooManyTokens):
        await one.mint(boss, Scope.READ, 60.0)


async def test_without_redis_tokens_are_told_to_wait() -> None:
    authority = process(NOWHERE, "a").authority
    boss = await authority.caller(ADMIN)
    assert boss is not None
    with pytest.raises(Unreadable):
        await authority.mint(boss, Scope.READ, 60.0)
    with pytest.raises(Unreadable):
        await authority.caller("x")
