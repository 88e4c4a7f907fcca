"""A server in virtual time that dies as by kill -9 and comes back over what had reached its disk."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine.fake import FakeEncoder, FakeRecognizer, FakeScript
from streaming.kept.journal import Journal
from streaming.kept.store import Store
from streaming.kept.stored import Batch
from streaming.observe.metrics import Metrics
from streaming.sessions.history import History
from streaming.sessions.registry import Sessions
from streaming.settings import JournalSettings, LimitSettings, ServerSettings
from tests.support.services import VIRTUAL, services_of
from tests.support.virtual import run
from tests.support.world import World


class VirtualJournal(Journal):
    """Writes `lag_s` after it was told, in the event loop, for threads have no virtual time."""

    lag_s = 0.02
    dead = False
    _due = False

    def _publish(self) -> None:
        self._scheduled = False
        fresh, self._fresh = self._fresh, Batch()
        self._waiting.add(fresh)
        if not self._due:
            self._due = True
            self._loop.call_later(self.lag_s, self._commit)

    def _commit(self) -> None:
        self._due = False
        batch, self._waiting = self._waiting, Batch()
        if not self.dead and batch:
            written = self.store.write(batch)
            seqs: dict[str, int] = {}
            for (session, _), (seq, _) in batch.states.items():
                seqs[session] = max(seqs.get(session, 0), seq)
            self._wrote(batch, seqs, written)

    async def run(self, order: Callable[[], Any]) -> Any:
        await asyncio.sleep(self.lag_s)
        return order()


async def _inline(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


class Lives(World):
    """The server of `World`, over a journal."""

    journal: VirtualJournal
    store: Store
    limits: LimitSettings
    script: FakeScript
    encoder: FakeEncoder | None = None
    tending: asyncio.Task[None]

    @classmethod
    def over(
        cls, store: Store, script: FakeScript, limits: LimitSettings, encoder: FakeEncoder | None
    ) -> Lives:
        engine = FakeRecognizer(script)
        world = cls.__new__(cls)
        world.store, world.limits, world.script, world.tasks = store, limits, script, []
        world.engine, world.encoder = engine, encoder
        world.begin()
        return world

    def begin(self) -> None:
        """A process begins."""
        metrics = Metrics()
        self.journal = VirtualJournal(self.store, metrics, clock=lambda: 1000 + self.journal._loop.time())
        history = History(self.journal, JournalSettings(), read=_inline, ask=_inline)
        self.services = services_of(
            self.engine,
            self.limits,
            sessions=Sessions(ServerSettings(), self.limits, history.begin),
            metrics=metrics,
            history=history,
            encoder=self.encoder,
            **VIRTUAL,
        )
        self.tending = asyncio.create_task(history.tend(self.services))

    async def die(self) -> None:
        """The process is gone, with all that was not on disk; another begins."""
        self.journal.dead = True
        doomed = asyncio.all_tasks() - {asyncio.current_task()}
        for task in doomed:
            task.cancel()
        await asyncio.gather(*doomed, return_exceptions=True)
        await self.services.dispatcher.close()
        self.tasks.clear()
        self.begin()


def living(
    body: Callable[[Lives], Awaitable[None]],
    script: FakeScript | None = None,
    *,
    encoder: FakeEncoder | None = None,
    **limits: Any,
) -> None:
    """Run the body with a server that may die."""

    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = Store(Path(folder) / "journal.sqlite3")
            world = Lives.over(store, script or FakeScript(delay_s=0.05), LimitSettings(**limits), encoder)
            await body(world)
            await world.all_done()
            await asyncio.sleep(1)
            world.tending.cancel()
            with suppress(asyncio.CancelledError):
                await world.tending
            await world.services.dispatcher.close()
            assert len(asyncio.all_tasks()) == 1
            store.close()

    run(main())
