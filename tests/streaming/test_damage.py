"""A disk that gives back other bytes than it was given: one session is lost, the others are not."""

from __future__ import annotations

import asyncio

import pytest

from tests.streaming.test_lives import SPOKEN, closed
from tests.support.comeback import Comeback
from tests.support.lives import Lives, living


@pytest.mark.parametrize("column", ["start", "progress", "voices", "data"])
def test_a_damaged_row_takes_no_other_session_along(column: str) -> None:
    async def body(world: Lives) -> None:
        clients = [Comeback(world, {}, SPOKEN, 2, 16_000) for _ in range(2)]
        ids = [(await client.begin()).session for client in clients]
        for client in clients:
            while client.sent < len(SPOKEN) // 2:
                await client.speak(3200)
        await asyncio.sleep(1)
        await world.die()
        table, key = ("events", "session") if column == "data" else ("sessions", "id")
        world.store._db.execute(f"update {table} set {column} = ? where {key} = ?", [b"\xa5\xff", ids[0]])
        if column != "voices":
            # There is nothing to go on with; the client hears so, and not that the server is broken.
            clients[0].channel = world.client()
            ready = clients[0].captions.ready
            assert ready is not None
            clients[0].channel.say({"type": "resume", "session": ids[0], "token": ready.token})
            await closed(clients[0])
            assert clients[0].channel.sent[-1]["code"] == "resume_refused"
        await asyncio.sleep(world.limits.resume_s + 60)
        assert world.store.unfinished() == []
        whole = world.store.load(ids[1])
        assert whole is not None
        assert "end" in {type(state).__struct_config__.tag for state in whole.states}
        history = world.services.history
        assert history is not None
        assert {summary.id for summary in await history.page(10, None)} == set(ids)
        assert (await history.log(ids[0]) is None) == (column != "voices")
        assert await history.delete(ids[0])

    living(body)
