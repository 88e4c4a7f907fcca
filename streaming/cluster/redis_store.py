"""The journal in Redis, shared by any number of processes. Blocking, as `SessionStore` says.

Each session has a fence, a number that grows with every claim. What a process writes carries the fence of
its own claim, and Redis refuses any other: a process that was frozen while somebody else went on with its
session changes nothing any more, whenever it wakes. What Redis took is as durable as Redis is set up to be;
what it has lost of sessions that live is written anew.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from streaming.errors import SettingsError
from streaming.kept.port import Written
from streaming.kept.stored import (
    Batch,
    Delivery,
    Progress,
    Stored,
    Summary,
    encode,
    label_of,
    read_back,
    received_of,
)

from . import scripts

logger = logging.getLogger("seamscribe")

PREFIX = "seamscribe:"
ANSWER_S = 2.0
"""So long Redis may take to answer."""

SKEW_S = 10.0
"""Clocks that differ by more are warned of."""

CLAIMED_MS = 60_000
"""A delivery that a process tries is nobody else's for so long."""

FIELDS = ("created", "ended", "token", "read", "start", "progress", "voices", "key")


def opened(url: str, *, most_deliveries: int) -> RedisStore:
    """The store of this process, which nobody was before; raises `SettingsError`."""
    store = RedisStore(url, secrets.token_hex(8), most_deliveries=most_deliveries)
    try:
        store.redis.ping()
    except store.failures as error:
        raise SettingsError(
            f"journal.url: no Redis answers there ({error}): start one, or leave it out"
        ) from None
    with suppress(*store.failures):  # not every Redis tells
        for warning in _warnings(store.redis, time.time()):
            logger.warning("journal.url: %(warning)s", {"warning": warning})
    return store


def _warnings(client: Any, now: float) -> Iterator[str]:
    """What will go wrong here one day."""
    memory = client.info("memory")
    if memory.get("maxmemory") and (policy := memory.get("maxmemory_policy")) != "noeviction":
        yield (
            f"when this Redis is full it throws away what is kept ({policy}): set its maxmemory-policy to"
            " noeviction"
        )
    seconds, microseconds = client.time()
    ahead = now - seconds - microseconds / 1e6
    if abs(ahead) > SKEW_S:
        side = "ahead of" if ahead > 0 else "behind"
        yield (
            f"the clock here is {abs(ahead):.0f} s {side} that of Redis: what is kept is listed and deleted,"
            " and webhooks are sent, by the clock of each process: set it right"
        )


class RedisStore:
    """Of one process, which is known to the others as `process`."""

    shared = True
    failures: tuple[type[Exception], ...] = (redis.RedisError, OSError)

    def __init__(self, url: str, process: str, *, most_deliveries: int = 10_000) -> None:
        """Raises `SettingsError`; whether anybody listens at `url` shows later."""
        try:
            client = redis.Redis.from_url(
                url,
                socket_timeout=ANSWER_S,
                socket_connect_timeout=ANSWER_S,
                health_check_interval=15,
                retry=Retry(NoBackoff(), 1),  # a connection may have gone stale while it was not needed
            )
        except ValueError as error:
            raise SettingsError(f"journal.url: {error}") from None
        self.redis: Any = client
        self.process = process
        self._most_deliveries = most_deliveries
        self._lock = threading.Lock()
        self._fences: dict[str, int] = {}
        """Of the sessions that this process has claimed."""
        self._scripts = {name: self.redis.register_script(getattr(scripts, name)) for name in scripts.ALL}

    def run(self, name: str, *arguments: Any, on: Any = None) -> Any:
        """One of `scripts`, at once or in the pipeline `on`."""
        return self._scripts[name](keys=[PREFIX], args=arguments, client=on)

    def close(self) -> None:
        self.redis.close()

    # -- writing ---------------------------------------------------------------------------------

    def write(self, batch: Batch) -> Written:
        ids = batch.sessions()
        with self._lock:
            for id in batch.opened:
                self._fences.setdefault(id, 1)
            fences = {id: self._fences.get(id, 0) for id in ids}
        pipe = self.redis.pipeline(transaction=False)
        for id, changes in _changes(batch).items():
            opened = batch.opened.get(id)
            self.run(
                "WRITE", id, self.process, fences[id], opened.created if opened else "", *changes, on=pipe
            )
        for (day, key), samples in batch.usage.items():
            pipe.hset(f"{PREFIX}usage:{day}", f"{self.process} {key}", samples)
            pipe.expire(f"{PREFIX}usage:{day}", 2 * 86_400)
            pipe.delete(f"{PREFIX}usage:{day - 2}")
        for id in batch.left:
            self.run("RELEASE", id, fences[id], on=pipe)
        results = executed(pipe)
        lost, missing = (
            frozenset(id for id, result in zip(ids, results, strict=False) if result == why)
            for why in (-1, 0)
        )
        with self._lock:
            for id in (*lost, *batch.left):
                self._fences.pop(id, None)
        dropped = self.run("DROP", self._most_deliveries) if batch.deliveries else 0
        return Written(int(dropped), lost, missing)

    def claim(self, session: str, known: int | None = None) -> bool:
        fence = int(self.run("CLAIM", session, self.process, "" if known is None else known))
        if fence:
            with self._lock:
                self._fences[session] = fence
        return fence > 0

    def taken(self) -> list[str]:
        """Sessions that this process had claimed and others have claimed since."""
        with self._lock:
            mine = dict(self._fences)
        rows = self._rows(list(mine), "fence")
        return [
            id for (id, own), (fence,) in zip(mine.items(), rows, strict=True) if fence and int(fence) != own
        ]

    def delete(self, session: str) -> bool:
        with self._lock:
            self._fences.pop(session, None)
        return bool(self.run("DELETE", session))

    def expire(
        self,
        before: int,
        most_bytes: int,
        spare: frozenset[str],
        beside: Mapping[str, int] = MappingProxyType({}),
    ) -> list[str]:
        old = self.redis.zrangebyscore(f"{PREFIX}ended", "-inf", f"({before}")
        gone = [id for id in map(bytes.decode, old) if id not in spare and self.delete(id)]
        elsewhere = sum(size for id, size in beside.items() if id not in gone)
        for id in map(bytes.decode, self.redis.zrange(f"{PREFIX}created", 0, -1)):
            if int(self.redis.get(f"{PREFIX}size") or 0) + elsewhere <= most_bytes:
                break
            ended = self.redis.hexists(f"{PREFIX}s:{id}", "ended")
            if ended and id not in spare and self.delete(id):
                elsewhere -= beside.get(id, 0)
                gone.append(id)
        return gone

    # -- reading ---------------------------------------------------------------------------------

    def load(self, session: str) -> Stored | None:
        with self.redis.pipeline(transaction=True) as pipe:
            pipe.hmget(f"{PREFIX}s:{session}", FIELDS)
            pipe.hvals(f"{PREFIX}e:{session}")
            row, events = executed(pipe)
        created, ended, token, read, start, progress, voices, key = row
        if created is None:
            return None
        rows = sorted(((int.from_bytes(e[:8], "big"), e[8:]) for e in events), key=lambda row: row[0])
        ended = None if ended is None else int(ended)
        found = (int(created), ended, token, read, start, progress, voices, (key or b"").decode())
        return read_back(session, found, [(data, seq) for seq, data in rows])

    def unfinished(self) -> list[tuple[str, int]]:
        ids = [id.decode() for id in self.redis.zrange(f"{PREFIX}open", 0, -1)]
        rows = self._rows(ids, "owner", "fence")
        living = self._living(owner for owner, _ in rows)
        return [
            (id, int(fence))
            for id, (owner, fence) in zip(ids, rows, strict=True)
            if fence is not None and owner not in living
        ]

    def page(self, most: int, before: tuple[int, str] | None = None) -> list[Summary]:
        ids: list[str] = []
        highest: str | int = "+inf" if before is None else before[0]
        for at in range(0, 1 << 62, 2 * most):
            found = self.redis.zrevrangebyscore(
                f"{PREFIX}created", highest, "-inf", start=at, num=2 * most, withscores=True
            )
            pairs = [(int(created), id.decode()) for id, created in found]
            ids += [id for created, id in pairs if before is None or (created, id) < before]
            if len(ids) >= most or not found:
                break
        rows = self._rows(ids[:most], "created", "ended", "progress", "start", "owner")
        others = self._living(owner for *_, owner in rows) - {self.process.encode()}
        return [
            Summary(
                id, int(c), None if e is None else int(e), received_of(p), label_of(start), owner in others
            )
            for id, (c, e, p, start, owner) in zip(ids, rows, strict=False)
            if c is not None
        ]

    def _living(self, owners: Iterable[bytes | None]) -> set[bytes]:
        """Which of these processes live."""
        names = sorted({owner for owner in owners if owner})
        alive = self.redis.mget([f"{PREFIX}p:{name.decode()}" for name in names]) if names else []
        return {name for name, address in zip(names, alive, strict=True) if address is not None}

    def usage(self) -> list[tuple[int, str, int]]:
        days = [int(key.rpartition(b":")[2]) for key in self.redis.scan_iter(f"{PREFIX}usage:*")]
        return [(day, key, n) for day in days for key, n in self.used(day).items()]

    def used(self, day: int, but: str = "") -> dict[str, int]:
        """What the keys used of a day in all processes but one: samples."""
        totals: dict[str, int] = {}
        for field, samples in self.redis.hgetall(f"{PREFIX}usage:{day}").items():
            process, _, key = field.decode().partition(" ")
            if process != but:
                totals[key] = totals.get(key, 0) + int(samples)
        return totals

    def seats(self, pipe: Any, key: str, sessions: int) -> None:
        """Say, in a pipeline, how many sessions of a key this process has."""
        if sessions:
            pipe.hset(f"{PREFIX}seats:{key}", self.process, sessions)
        else:
            pipe.hdel(f"{PREFIX}seats:{key}", self.process)

    def _rows(self, ids: Sequence[str], *fields: str) -> list[list[Any]]:
        pipe = self.redis.pipeline(transaction=False)
        for id in ids:
            pipe.hmget(f"{PREFIX}s:{id}", fields)
        rows: list[list[Any]] = executed(pipe)
        return rows

    # -- webhooks --------------------------------------------------------------------------------

    def due(self, now: int, most: int, but: Sequence[str] = ()) -> list[Delivery]:
        found = self.run("DUE", now, most, now + CLAIMED_MS)
        deliveries = [
            Delivery(id.decode(), session.decode(), body, int(created), int(tries), int(due))
            for id, session, body, created, tries, due in found
        ]
        return [delivery for delivery in deliveries if delivery.id not in but]

    def next_due(self) -> int | None:
        first = self.redis.zrange(f"{PREFIX}due", 0, 0, withscores=True)
        return int(first[0][1]) if first else None

    def tried(self, id: str, again: int | None) -> None:
        self.run("TRIED", id, "" if again is None else again)


def executed(pipe: Any) -> list[Any]:
    """What the commands of a pipeline answer. Raises the first error as Redis told it: its library would add
    the command, and with it the ids of sessions, which belong into no log."""
    results: list[Any] = pipe.execute(raise_on_error=False)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def _changes(batch: Batch) -> dict[str, list[Any]]:
    """Of each session what `scripts.WRITE` takes: fields, states, deliveries, each counted."""
    fields: dict[str, list[Any]] = {id: [] for id in batch.sessions()}
    states: dict[str, list[Any]] = {id: [] for id in fields}
    deliveries: dict[str, list[Any]] = {id: [] for id in fields}
    for id, o in batch.opened.items():
        start, progress = msgspec.json.encode(o.start), msgspec.json.encode(Progress())
        fields[id] += ["created", o.created, "token", o.token, "read", o.read, "start", start]
        fields[id] += ["progress", progress, "key", ""]
    for id, p in batch.progress.items():
        fields[id] += ["progress", msgspec.json.encode(p)]
    for name, values in (("voices", batch.voices), ("ended", batch.ended), ("key", batch.keys)):
        for id, value in values.items():
            fields[id] += [name, value]
    for (id, key), (seq, state) in batch.states.items():
        states[id] += [key, seq.to_bytes(8, "big") + encode(state)]
    for d in batch.deliveries.values():
        deliveries[d.session] += [d.id, d.body, d.created, d.tries, d.due]
    return {
        id: [
            *(len(fields[id]) // 2, *fields[id]),
            *(len(states[id]) // 2, *states[id]),
            *(len(deliveries[id]) // 5, *deliveries[id]),
        ]
        for id in fields
    }
