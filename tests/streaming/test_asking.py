"""Stores that hang: who asks them waits, and nobody else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from streaming.errors import Unreadable
from streaming.kept import asking as module
from streaming.kept.asking import THREADS, Asking
from streaming.kept.journal import Journal
from streaming.kept.store import Store
from streaming.observe.metrics import Metrics
from streaming.sessions.history import History
from streaming.settings import JournalSettings
from tests.support.virtual import settle


class Hanging:
    """Any method of it returns only when it is let go."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.calls = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> None:
            self.calls += 1
            self.free.wait(60)

        return call


async def test_who_has_waited_long_enough_is_told_and_asks_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    ask, hanging = Asking(), Hanging()
    told = await asyncio.gather(*(ask(hanging.load) for _ in range(20)), return_exceptions=True)
    assert all(isinstance(one, TimeoutError) for one in told)
    hanging.free.set()
    assert await ask(lambda: "back") == "back"
    assert hanging.calls == THREADS


def _history(store: Any, tmp_path: Path) -> Callable[[], Awaitable[Any]]:
    journal = Journal(Store(tmp_path / "j.sqlite3"), Metrics())
    journal.store.load = store.load  # type: ignore[method-assign]
    history = History(journal, JournalSettings())
    return lambda: history.log("s")


def _peers(store: Any, tmp_path: Path) -> Callable[[], Awaitable[Any]]:
    from streaming.cluster.membership import Membership

    member = Membership(Journal(_redis(store), Metrics()), "http://here")
    return lambda: member.owner("s")


def _tickets(store: Any, tmp_path: Path) -> Callable[[], Awaitable[Any]]:
    from streaming.cluster.access import SharedTickets

    tickets = SharedTickets(_redis(store), 8)
    return lambda: tickets.use("token")


def _books(store: Any, tmp_path: Path) -> Callable[[], Awaitable[Any]]:
    from streaming.cluster.access import SharedBooks

    books = SharedBooks(_redis(store))
    return lambda: books.seat("key", 1, 1)


def _redis(hanging: Any) -> Any:
    pytest.importorskip("redis", reason="needs the extra redis")
    from streaming.cluster.redis_store import RedisStore

    store = RedisStore("redis://127.0.0.1:9/0", "a")
    store.redis = hanging
    store.run = hanging.run  # type: ignore[method-assign]
    return store


@pytest.mark.parametrize("asked", [_history, _peers, _tickets, _books])
async def test_a_store_that_hangs_holds_up_nothing_else(
    asked: Callable[[Any, Path], Callable[[], Awaitable[Any]]],
    tmp_path: Path,
) -> None:
    hanging = Hanging()
    ask = asked(hanging, tmp_path)
    waiting = [asyncio.ensure_future(ask()) for _ in range(100)]
    await settle()
    try:
        async with asyncio.timeout(30):
            assert await asyncio.to_thread(lambda: "audio is judged") == "audio is judged"
            assert hanging.calls
    finally:
        hanging.free.set()
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_transcript_that_cannot_be_read_in_time_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    hanging = Hanging()
    with pytest.raises(Unreadable):
        await _history(hanging, tmp_path)()
    hanging.free.set()
