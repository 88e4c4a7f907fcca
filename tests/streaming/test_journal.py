"""The writer of the journal: groups that are whole, and disks that fail."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from streaming.core.continuation import REACH
from streaming.kept import journal as module
from streaming.kept.journal import Journal
from streaming.kept.log import Log, State
from streaming.kept.port import Written
from streaming.kept.recorder import Recorder
from streaming.kept.store import Store
from streaming.kept.stored import Batch, Delivery
from streaming.observe.metrics import Metrics
from streaming.wire.messages import Ended, Named, Receipt, Start
from tests.support.waiting import until

END = Ended(0, Receipt(0, 0, 0, 0, 0, 0, 0, 0, 0, ()))


class Disk(Store):
    """Fails on demand, and remembers what it was given."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.fails: str | None = None
        self.batches: list[Batch] = []

    def write(self, batch: Batch) -> Written:
        self.batches.append(batch)
        if self.fails is not None:
            raise sqlite3.OperationalError(self.fails)
        return super().write(batch)

    def break_by(self, pragma: str) -> None:
        """Have SQLite itself fail."""
        self._db.execute(f"pragma {pragma}")


@asynccontextmanager
async def journaling(path: Path) -> AsyncIterator[tuple[Journal, Disk, Metrics]]:
    metrics, disk = Metrics(), Disk(path / "j.sqlite3")
    journal = Journal(disk, metrics)
    journal.start()
    try:
        yield journal, disk, metrics
    finally:
        await journal.close()


def begun(journal: Journal, id: str = "s") -> Recorder:
    return journal.begin(id, b"t" * 32, b"r" * 32, Start())


def named(number: int, name: str = "Ann") -> Named:
    return Named(0, number, name)


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


async def test_who_waits_for_the_disk_goes_on_once_it_is_there(tmp_path: Path) -> None:
    async with journaling(tmp_path) as (journal, disk, _):
        recorder = begun(journal)
        await recorder.on_disk(0)
        assert disk.load("s") is not None
        recorder.put("named:1", 1, named(1))
        recorder.progress((REACH + 641, REACH + 1000), REACH + 1280)
        assert recorder.durable(5000) == 0
        await recorder.on_disk(1)
        stored = disk.load("s")
        assert stored is not None
        assert [state.seq for state in stored.states] == [1]
        # Whole frames are sent again, from a little before where the track furthest behind had settled.
        assert recorder.durable(5000) == 640
        assert recorder.durable(100) == 100


async def test_what_one_callback_notes_is_written_together(tmp_path: Path) -> None:
    """Words that move from one segment to another are never on disk half-way."""
    async with journaling(tmp_path) as (journal, disk, _):
        recorder = begun(journal)
        await recorder.on_disk(0)
        del disk.batches[:]
        recorder.put("named:1", 1, named(1))
        time.sleep(0.1)  # noqa: ASYNC251 - the thread has all the time it could want to write half of it
        recorder.put("named:2", 2, named(2))
        recorder.progress((320,), 320)
        await recorder.on_disk(2)
        assert len(disk.batches) == 1


@pytest.mark.parametrize(
    ("pragma", "repair", "cause"),
    [
        ("max_page_count = 1", "max_page_count = 1000000", "full"),
        ("query_only = 1", "query_only = 0", "read_only"),
    ],
)
async def test_a_disk_that_fails_stops_nobody_and_is_made_up_for(
    tmp_path: Path, pragma: str, repair: str, cause: str, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    caplog.set_level(logging.WARNING)
    async with journaling(tmp_path) as (journal, disk, metrics):
        recorder = begun(journal)
        await recorder.on_disk(0)
        disk.break_by(pragma)
        for number in range(1, 200):
            recorder.put(f"named:{number}", number, named(number, "long " * 2000))
        recorder.progress((REACH + 640,), REACH + 640)
        await until(lambda: metrics.journal_errors.value(cause=cause) > 3)
        await recorder.on_disk(199)  # at once, though nothing is there
        assert recorder.durable(9999) == 0
        assert metrics.journal_ok.value() == 0
        disk.break_by(repair)
        await until(lambda: recorder.durable(9999) == 640)
        stored = disk.load("s")
        assert stored is not None
        assert len(stored.states) == 199
        assert metrics.journal_ok.value() == 1
    warnings = [record.getMessage() for record in caplog.records]
    assert len([w for w in warnings if "cannot be written" in w]) == 1
    assert len([w for w in warnings if "is back" in w]) == 1


async def test_a_locked_database_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.kept.store.BUSY_S", 0.05)
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    async with journaling(tmp_path) as (journal, disk, metrics):
        recorder = begun(journal)
        await recorder.on_disk(0)
        with sqlite3.connect(tmp_path / "j.sqlite3", isolation_level=None) as other:
            other.execute("begin immediate")
            recorder.put("named:1", 1, named(1))
            await until(lambda: metrics.journal_errors.value(cause="locked") > 0)
            await recorder.on_disk(1)
            other.execute("rollback")
        other.close()
        await until(lambda: disk.load("s").states)  # type: ignore[union-attr]


async def test_a_slow_disk_holds_a_message_up_once_and_then_none(tmp_path: Path) -> None:
    async with journaling(tmp_path) as (journal, disk, metrics):
        recorder = begun(journal)
        await recorder.on_disk(0)
        disk._lock.acquire()
        recorder.put("named:1", 1, named(1))
        await recorder.on_disk(1)
        assert metrics.journal_late.value() == 1
        assert journal.stuck
        recorder.put("named:2", 2, named(2))
        await recorder.on_disk(2)
        assert metrics.journal_late.value() == 1
        disk._lock.release()
        await until(lambda: not journal.stuck)


async def test_nobody_is_told_anything_before_it_is_sure_whose_session_it_is(tmp_path: Path) -> None:
    """A process that was frozen may have lost its sessions: one message that waits for a slow store finds
    out, and so must all others, which do not wait for it any more."""
    async with journaling(tmp_path) as (journal, disk, _):
        recorder = begun(journal)
        await recorder.on_disk(0)
        disk.fails = "frozen"
        recorder.put("named:1", 1, Named(0, 1, "Ann"))
        known = asyncio.Event()

        async def sure() -> None:
            await known.wait()

        journal.sure = sure
        first = asyncio.create_task(recorder.on_disk(1))  # is let go as the disk fails
        await until(lambda: journal.stuck)
        second = asyncio.create_task(recorder.on_disk(1))
        await asyncio.sleep(0.05)
        assert not first.done()
        assert not second.done()
        known.set()
        await asyncio.gather(first, second)


async def test_while_the_disk_fails_what_waits_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 50)
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    async with journaling(tmp_path) as (journal, disk, metrics):
        first, second = begun(journal), begun(journal, "other")
        await second.on_disk(0)
        disk.fails = "disk I/O error"
        first.put("named:1", 1, named(1))
        await until(lambda: metrics.journal_errors.value(cause="io") > 0)
        for number in range(2, 200):
            first.put(f"named:{number}", number, named(number))
        assert metrics.journal_lost.value() == 1
        disk.fails = None
        await until(lambda: metrics.journal_ok.value() == 1)
        second.put("named:1", 1, named(1))
        await second.on_disk(1)
        for id, most in (("s", 50), ("other", 1)):
            stored = disk.load(id)
            assert stored is not None
            assert len(stored.states) <= most
        await first.on_disk(199)  # nobody waits for what is not kept


async def test_a_session_that_never_began_is_not_kept(tmp_path: Path) -> None:
    async with journaling(tmp_path) as (journal, disk, _):
        recorder = begun(journal)
        recorder.put("named:1", 1, named(1))
        recorder.discard()
        await begun(journal, "other").on_disk(0)
        assert disk.load("s") is None


async def test_the_end_is_kept_and_then_nobody_waits(tmp_path: Path) -> None:
    async with journaling(tmp_path) as (journal, disk, _):
        recorder = begun(journal)
        recorder.put("end", 1, END)
        recorder.end()
        await recorder.on_disk(1)
        stored = disk.load("s")
        assert stored is not None
        assert stored.ended is not None
        await until(lambda: not journal.live)
        recorder.put("named:1", 2, named(1))  # somebody is given a name afterwards
        await recorder.on_disk(2)
        await until(lambda: len(disk.load("s").states) == 2)  # type: ignore[union-attr]


async def test_what_the_store_has_lost_is_written_anew_with_its_end_and_nothing_is_announced_twice(
    tmp_path: Path,
) -> None:
    class Forgetful(Disk):
        missing: frozenset[str] = frozenset()

        def write(self, batch: Batch) -> Written:
            lived.append("s" in journal.live)
            written = super().write(batch)
            missing, self.missing = self.missing, frozenset()
            return Written(written.dropped, written.lost, missing)

    lived: list[bool] = []
    disk, announced = Forgetful(tmp_path / "j.sqlite3"), list[str]()
    journal = Journal(disk, Metrics())
    log: Log = Log()
    logs = {"s": log}
    journal.whole = lambda session: logs[session].whole() if session in logs else None

    def announce(session: str, key: str, seq: int, state: State) -> list[Delivery]:
        announced.append(key)
        return [Delivery(f"d{seq}", session, b"{}", 1)]

    journal.announce = announce
    journal.start()
    recorder = begun(journal)
    log._on_put = recorder.put
    recorder.owner("bot")
    recorder.voices(b"voices")
    log.put(Named(0, 1, "Ann"))
    recorder.progress((32_000,), 48_000)
    await recorder.on_disk(log.seq)
    before = recorder.durable(48_000)
    disk.missing = frozenset({"s", "deleted"})
    log.put(END)
    recorder.progress((48_000,), 48_000)
    recorder.end()
    await until(lambda: len(disk.batches) == 3)
    await until(lambda: not journal.live)
    whole = disk.batches[2]
    assert whole.opened["s"].token == b"t" * 32
    assert (whole.keys, whole.voices) == ({"s": "bot"}, {"s": b"voices"})
    assert whole.progress["s"].received == 48_000
    assert {key: seq for (_, key), (seq, _) in whole.states.items()} == {"named:1": 1, "end": 2}
    assert [d.id for d in whole.deliveries.values()] == ["d2"], "what had not reached the store"
    assert "s" in whole.ended
    assert announced == ["named:1", "end"]
    assert lived == [True, True, True], "it is recorded until its end is kept"
    assert recorder.durable(48_000) >= before
    await journal.close()


async def test_closing_writes_what_waits(tmp_path: Path) -> None:
    async with journaling(tmp_path) as (journal, _, _):
        begun(journal).put("named:1", 1, named(1))
    stored = Store(tmp_path / "j.sqlite3").load("s")
    assert stored is not None
    assert len(stored.states) == 1


async def test_deleting_takes_along_what_still_waits(tmp_path: Path) -> None:
    async with journaling(tmp_path) as (journal, disk, _):
        recorder = begun(journal)
        recorder.put("named:1", 1, named(1, "unmistakable"))
        assert await journal.delete("s")
        assert not await journal.delete("s")
        assert disk.load("s") is None
    assert b"unmistakable" not in everything(tmp_path)


async def test_orders_that_fail_tell_who_gave_them(tmp_path: Path) -> None:
    async with journaling(tmp_path) as (journal, _, _):
        with pytest.raises(ZeroDivisionError):
            await journal.run(lambda: 1 // 0)
        assert await journal.run(lambda: 7) == 7
