"""How many sessions live, and for how long ended ones are kept."""

from __future__ import annotations

import asyncio

import pytest

from streaming.errors import Overloaded, Restarting
from streaming.sessions.registry import Sessions
from streaming.settings import LimitSettings, ServerSettings
from tests.support.virtual import run, settle


def test_a_cap_and_free_places_again() -> None:
    async def main() -> None:
        sessions = Sessions(ServerSettings(), LimitSettings(max_sessions=2, retry_after_s=1.5))
        first = sessions.open()
        sessions.open()
        with pytest.raises(Overloaded) as caught:
            sessions.open()
        assert caught.value.retry_after_ms == 1500
        sessions.close(first)
        assert sessions.active == 1
        assert len({sessions.open().id, first.id}) == 2

    run(main())


def test_finished_ones_are_kept_for_a_bounded_time_and_number() -> None:
    async def main() -> None:
        sessions = Sessions(ServerSettings(keep_finished_s=60, keep_finished=2), LimitSettings())
        entries = [sessions.open() for _ in range(3)]
        for entry in entries:
            sessions.close(entry)
        assert sessions.find(entries[0].id) is None
        assert sessions.find(entries[2].id) is entries[2]
        await asyncio.sleep(61)
        assert sessions.find(entries[2].id) is None
        none = Sessions(ServerSettings(keep_finished=0), LimitSettings())
        entry = none.open()
        assert none.find(entry.id) is entry
        none.close(entry)
        assert none.find(entry.id) is None

    run(main())


class Client:
    def __init__(self) -> None:
        self.orders: list[str] = []
        self.over = asyncio.Event()

    async def run(self) -> None:
        await self.over.wait()

    def stop(self) -> None:
        self.orders.append("stop")

    def give_up(self) -> None:
        self.orders.append("give up")

    def let_go(self) -> None:
        self.orders.append("let go")


def test_drain_stops_then_gives_up() -> None:
    async def main() -> None:
        sessions, client = Sessions(ServerSettings(), LimitSettings()), Client()
        sessions.join(client)
        sessions.host(sessions.open(), client)
        draining = asyncio.create_task(sessions.drain(5.0))
        await asyncio.sleep(1)
        assert client.orders == ["stop", "stop"]  # as a connection and as a session
        with pytest.raises(Restarting):
            sessions.open()
        with pytest.raises(Restarting):
            sessions.join(Client())
        await asyncio.sleep(5)
        assert client.orders == ["stop", "stop", "give up"]
        sessions.leave(client)
        await settle()
        assert not draining.done()
        client.over.set()
        assert await draining

    run(main())


def test_a_client_that_stays_is_told() -> None:
    async def main() -> None:
        sessions = Sessions(ServerSettings(), LimitSettings())
        assert await sessions.drain(1.0)
        stuck = Sessions(ServerSettings(), LimitSettings())
        stuck.join(Client())
        assert not await stuck.drain(1.0)

    run(main())
