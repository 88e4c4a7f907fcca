"""A slow reader gets the newest state, never a hole."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from streaming.outbox import Outbox
from streaming.wire.messages import Ack, Flushed, Segment, ServerMessage
from tests.support.virtual import run, settle


def segment(id: int, rev: int, *, final: bool = False) -> Segment:
    return Segment(0, id, rev, 0, 0, 0, None, "", (), "", final)


def taken(outbox: Outbox) -> list[ServerMessage]:
    async def all_of() -> list[ServerMessage]:
        outbox.finish()
        messages = []
        while (message := await outbox.take()) is not None:
            messages.append(message)
        return messages

    return run(all_of())


def test_newer_revisions_take_the_older_ones_place() -> None:
    outbox = Outbox(16)
    for message in (segment(1, 1), Flushed(0, "a", 1), Ack(0, 1), segment(1, 2), segment(2, 1), Ack(0, 9)):
        outbox.put(message)
    assert [type(m).__name__ for m in taken(outbox)] == ["Segment", "Flushed", "Ack", "Segment"]


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans(), st.booleans()), max_size=60))
def test_finals_arrive_once_and_numbers_have_no_holes(steps: list[tuple[int, bool, bool]]) -> None:
    async def main() -> None:
        outbox, closed, got = Outbox(4), set[int](), list[ServerMessage]()
        rev = 0
        for id, final, read in steps:
            if id not in closed:
                rev += 1
                outbox.put(segment(id, rev, final=final))
                if final:
                    closed.add(id)
            if read and len(outbox):
                message = await outbox.take()
                assert message is not None
                got.append(message)
        outbox.finish()
        while (message := await outbox.take()) is not None:
            got.append(message)
        assert [m.seq for m in got] == list(range(1, len(got) + 1))
        segments = [m for m in got if isinstance(m, Segment)]
        assert sorted(s.id for s in segments if s.final) == sorted(closed)
        for id in closed:
            assert [s.final for s in segments if s.id == id][-1]
            revisions = [s.rev for s in segments if s.id == id]
            assert revisions == sorted(revisions)

    run(main())


def test_full_and_finished() -> None:
    async def main() -> None:
        outbox = Outbox(2)
        waiting = asyncio.create_task(outbox.take())
        await settle()
        outbox.put(segment(1, 1))
        assert (await waiting) == segment(1, 1).__class__(1, 1, 1, 0, 0, 0, None, "", (), "", False)
        outbox.put(segment(1, 2))
        outbox.put(segment(2, 1))
        assert outbox.full
        outbox.discard()
        outbox.put(segment(3, 1))
        assert await outbox.take() is None
        assert outbox.seq == 1

    run(main())
