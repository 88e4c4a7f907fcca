"""How a session begins: as a whole, or not at all."""

from __future__ import annotations

import asyncio

import pytest

from streaming.access.quota import Quotas
from streaming.errors import Overloaded
from streaming.sessions.beginning import begin
from streaming.wire.errors import ProtocolError
from streaming.wire.messages import Start
from tests.support.lives import Lives, living


def test_a_session_counts_against_its_key_here_and_in_processes_to_come() -> None:
    async def body(world: Lives) -> None:
        quotas = Quotas()
        entry, live = begin(Start(), world.services, await quotas.lease("bot"))
        await asyncio.sleep(1)
        stored = world.store.load(entry.id)
        assert stored is not None
        assert stored.key == "bot"
        assert quotas.sessions("bot") == 1
        live.stop()
        await world.all_done()
        assert quotas.sessions("bot") == 0

    living(body)


def test_what_does_not_begin_takes_no_place_and_leaves_no_trace() -> None:
    async def body(world: Lives) -> None:
        quotas = Quotas()
        with pytest.raises(ProtocolError, match="cannot tell voices"):
            begin(Start(voices=("Ann",)), world.services, await quotas.lease("bot"))
        _, live = begin(Start(), world.services, await quotas.lease("other"))
        with pytest.raises(Overloaded):
            begin(Start(), world.services, await quotas.lease("bot"))
        await asyncio.sleep(1)
        assert quotas.sessions("bot") == 0
        assert len(world.store.unfinished()) == world.services.sessions.active == 1
        live.stop()
        await world.all_done()

    living(body, max_sessions=1)
