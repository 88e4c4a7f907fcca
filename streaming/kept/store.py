"""The journal's file: an SQLite database in WAL mode. Blocking; every method is one transaction.

`events` holds the compacted log of each session, one row a key, so reading a session back is loading its log.
Deleted content is overwritten (`secure_delete`), and after `delete` nothing of it is left in the WAL either.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec

from .port import Written
from .stored import Batch, Delivery, Progress, Stored, Summary, encode, label_of, read_back, received_of

BUSY_S = 2.0
"""So long another process may hold the database."""

_STEPS = (
    """
create table sessions(
  id text primary key, created integer not null, ended integer, token blob not null, read blob not null,
  start blob not null, progress blob not null, voices blob) without rowid;
create index sessions_by_time on sessions(created, id);
create table events(
  session text not null, key text not null, seq integer not null, data blob not null,
  primary key(session, key)) without rowid;
create table deliveries(
  id text primary key, session text not null, body blob not null, created integer not null,
  tries integer not null default 0, due integer not null) without rowid;
create index deliveries_by_time on deliveries(due);
""",
    """
create table usage(
  day integer not null, key text not null, samples integer not null, primary key(day, key)) without rowid;
""",
    "alter table sessions add column key text not null default '';",
)
"""What makes a file of each version one of the next; a new one has 0."""

VERSION = len(_STEPS)


class StoreError(Exception):
    """The database cannot be used; the message says why and names the remedy."""


class Store:
    """One database file, made where it is missing; a `SessionStore` of one process alone. Methods may be
    called from any thread, one at a time."""

    shared = False
    failures: tuple[type[Exception], ...] = (sqlite3.Error,)

    def __init__(self, path: Path, *, most_deliveries: int = 10_000) -> None:
        """Raises `StoreError`."""
        self._lock = threading.Lock()
        self._most_deliveries = most_deliveries
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._db = sqlite3.connect(path, BUSY_S, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{path}: {error}: name another folder as journal.path") from error
        try:
            self._prepare(self._db)
        except sqlite3.Error as error:
            self._db.close()
            raise StoreError(f"{path}: {error}: name another folder as journal.path") from error
        except StoreError:
            self._db.close()
            raise

    def _prepare(self, db: sqlite3.Connection) -> None:
        db.execute("pragma auto_vacuum = incremental")
        db.execute("pragma journal_mode = wal")
        # FULL: what is committed outlives a power cut, not only this process.
        db.execute("pragma synchronous = full")
        db.execute("pragma secure_delete = on")
        (version,) = db.execute("pragma user_version").fetchone()
        if 0 <= version < VERSION:
            db.executescript(f"begin;{''.join(_STEPS[version:])}pragma user_version = {VERSION};commit;")
        elif version != VERSION:
            raise StoreError(f"the journal is of version {version}, not {VERSION}: name another journal.path")

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextlib.contextmanager
    def _transaction(self, kind: str = "immediate") -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute(f"begin {kind}")
            try:
                yield self._db
                self._db.execute("commit")
            except BaseException:
                # A disk that is full may have ended the transaction by itself.
                if self._db.in_transaction:
                    self._db.execute("rollback")
                raise

    def _reading(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        # A database that cannot be written to can still be read.
        return self._transaction("deferred")

    # -- writing ---------------------------------------------------------------------------------

    def write(self, batch: Batch) -> Written:
        """Make all of it durable. Raises `sqlite3.Error`, and then nothing of it is there."""
        with self._transaction() as db:
            db.executemany(
                "insert or ignore into sessions values(?, ?, null, ?, ?, ?, ?, null, '')",
                [
                    (
                        id,
                        o.created,
                        o.token,
                        o.read,
                        msgspec.json.encode(o.start),
                        _PROGRESS.encode(Progress()),
                    )
                    for id, o in batch.opened.items()
                ],
            )
            db.executemany(
                "insert into events select ?1, ?2, ?3, ?4 where exists(select 1 from sessions where id = ?1)"
                " on conflict do update set seq = excluded.seq, data = excluded.data",
                [(session, key, seq, encode(s)) for (session, key), (seq, s) in batch.states.items()],
            )
            for column, values in (
                ("progress", {id: _PROGRESS.encode(p) for id, p in batch.progress.items()}),
                ("voices", batch.voices),
                ("ended", batch.ended),
                ("key", batch.keys),
            ):
                db.executemany(
                    f"update sessions set {column} = ? where id = ?", [(v, id) for id, v in values.items()]
                )
            db.executemany(
                "insert or ignore into deliveries values(?, ?, ?, ?, ?, ?)",
                [(d.id, d.session, d.body, d.created, d.tries, d.due) for d in batch.deliveries.values()],
            )
            self._keep_usage(db, batch.usage)
            return Written(self._drop_deliveries(db) if batch.deliveries else 0)

    def _keep_usage(self, db: sqlite3.Connection, usage: Mapping[tuple[int, str], int]) -> None:
        """Days before yesterday go."""
        if usage:
            db.executemany(
                "insert or replace into usage values(?, ?, ?)",
                [(*at, samples) for at, samples in usage.items()],
            )
            db.execute("delete from usage where day < ?", [max(day for day, _ in usage) - 1])

    def _drop_deliveries(self, db: sqlite3.Connection) -> int:
        """Of more than may wait the oldest go."""
        return db.execute(
            "delete from deliveries where id in"
            " (select id from deliveries order by created desc limit -1 offset ?)",
            [self._most_deliveries],
        ).rowcount

    def delete(self, session: str) -> bool:
        """Remove every trace; False where there was none."""
        with self._transaction() as db:
            found = _delete(db, session)
        self.clean()
        return found

    def claim(self, session: str, known: int | None = None) -> bool:
        """There is no other process."""
        return True

    def clean(self) -> None:
        """Leave nothing of what was deleted in the files, and give back their room."""
        with self._lock:
            self._db.execute("pragma incremental_vacuum").fetchall()
            self._db.execute("pragma wal_checkpoint(truncate)").fetchall()

    def expire(
        self,
        before: int,
        most_bytes: int,
        spare: frozenset[str],
        beside: Mapping[str, int] = MappingProxyType({}),
    ) -> list[str]:
        """Delete sessions that ended before `before`, and the oldest beyond `most_bytes`; those in `spare`
        stay. `beside` is what sessions take up elsewhere. Returns the ids of what is gone."""
        gone: list[str] = []
        elsewhere = sum(beside.values())
        with self._transaction() as db:
            rows = db.execute("select id, ended from sessions order by created, id").fetchall()
            for id, ended in rows:
                if id in spare or ended is None:
                    continue
                if ended < before or self._used(db) + elsewhere > most_bytes:
                    _delete(db, id)
                    elsewhere -= beside.get(id, 0)
                    gone.append(id)
        if gone:
            self.clean()
        return gone

    def _used(self, db: sqlite3.Connection) -> int:
        pages, free, size = (
            db.execute(f"pragma {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    # -- reading ---------------------------------------------------------------------------------

    def load(self, session: str) -> Stored | None:
        """All of one session; raises `Damaged`."""
        with self._reading() as db:
            row = db.execute(
                "select created, ended, token, read, start, progress, voices, key from sessions where id = ?",
                [session],
            ).fetchone()
            rows = db.execute(
                "select data, seq from events where session = ? order by seq", [session]
            ).fetchall()
        if row is None:
            return None
        return read_back(session, row, rows)

    def unfinished(self) -> list[tuple[str, int]]:
        """As `SessionStore`, each with 0."""
        with self._reading() as db:
            rows = db.execute("select id from sessions where ended is null order by created, id").fetchall()
        return [(id, 0) for (id,) in rows]

    def page(self, most: int, before: tuple[int, str] | None = None) -> list[Summary]:
        """Sessions, newest first; those after (`created`, id) in this order."""
        with self._reading() as db:
            rows = db.execute(
                "select id, created, ended, progress, start from sessions where (created, id) < (?, ?)"
                " order by created desc, id desc limit ?",
                [*(before or (1 << 62, "")), most],
            ).fetchall()
        return [Summary(id, c, e, received_of(p), label_of(start)) for id, c, e, p, start in rows]

    def usage(self) -> list[tuple[int, str, int]]:
        """Of each day that is kept what each key used: day (since 1970), name, samples of audio."""
        with self._reading() as db:
            return db.execute("select day, key, samples from usage").fetchall()

    # -- webhooks --------------------------------------------------------------------------------

    def due(self, now: int, most: int, but: Sequence[str] = ()) -> list[Delivery]:
        """Deliveries to be tried, the longest due first; those in `but` are under way."""
        with self._reading() as db:
            rows = db.execute(
                "select id, session, body, created, tries, due from deliveries where due <= ?"
                " order by due limit ?",
                [now, most + len(but)],
            ).fetchall()
        return [Delivery(*row) for row in rows if row[0] not in but][:most]

    def next_due(self) -> int | None:
        """When the next delivery is to be tried; None where none waits."""
        with self._reading() as db:
            (due,) = db.execute("select min(due) from deliveries").fetchone()
        return None if due is None else int(due)

    def tried(self, id: str, again: int | None) -> None:
        """A delivery was tried: it is done with, or due `again`."""
        with self._transaction() as db:
            if again is None:
                db.execute("delete from deliveries where id = ?", [id])
            else:
                db.execute("update deliveries set tries = tries + 1, due = ? where id = ?", [again, id])


_PROGRESS = msgspec.json.Encoder()


def _delete(db: sqlite3.Connection, session: str) -> bool:
    db.execute("delete from events where session = ?", [session])
    db.execute("delete from deliveries where session = ?", [session])
    return db.execute("delete from sessions where id = ?", [session]).rowcount > 0
