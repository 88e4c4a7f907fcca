"""A slow reader gets the newest state, never a hole."""

from __future__ import annotations

import asyncio
import itertools

from hypothesis import given
from hypothesis import strategies as st

from clients.captions import Captions
from streaming.outbox import Outbox
from streaming.wire.messages import Ack, Flushed, Named, Segment, ServerMessage, Speaker, Word
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


def said(id: int, rev: int, first: int, end: int) -> Segment:
    words = tuple(Word(str(index), index, index + 1) for index in range(first, end))
    return Segment(0, id, rev, first, first, end, None, " ".join(w.text for w in words), words, "", True)


def test_a_part_of_a_split_stands_right_behind_its_segment() -> None:
    outbox = Outbox(16)
    for message in (
        said(1, 1, 0, 6),
        Flushed(0, "a", 1),
        said(2, 1, 6, 8),
        Speaker(0, 1, 2, 1, frozen=False),
        said(1, 3, 0, 4),
        said(3, 1, 4, 6),
        said(3, 2, 4, 5),
        said(4, 1, 5, 6),
    ):
        outbox.put(message)
    got = [(m.id, m.first_word, len(m.words)) for m in taken(outbox) if isinstance(m, Segment)]
    assert got == [(1, 0, 4), (3, 4, 1), (4, 5, 1), (2, 6, 2)]


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 3), st.booleans()), max_size=30))
def test_however_slow_a_reader_a_split_reads_as_one(steps: list[tuple[int, int, bool]]) -> None:
    async def main() -> None:
        outbox, captions = Outbox(4), Captions()
        parts: list[tuple[int, int, int, int]] = []  # id, rev, first, end
        ids, count = itertools.count(1), 0
        for length, cut, read in steps:
            # Either new words, or a split of the newest segment but `cut`.
            if cut == 0 or len(parts) < cut or parts[-cut][3] - parts[-cut][2] < 2:
                parts.append((next(ids), 1, count, count + length))
                outbox.put(said(*parts[-1]))
                count += length
            else:
                id, rev, first, end = parts[-cut]
                middle = first + 1 + length % (end - first - 1)
                new = [(id, rev + 1, first, middle), (next(ids), 1, middle, end)]
                parts[len(parts) - cut : len(parts) - cut + 1] = new
                for part in new:
                    outbox.put(said(*part))
            outbox.put(Ack(0, count))
            if read:
                captions.receive(await receive(outbox))
        while len(outbox):
            captions.receive(await receive(outbox))
        assert captions.faults == []
        assert [(s.id, s.rev, s.first_word) for s in captions.ordered()] == [part[:3] for part in parts]

    run(main())


async def receive(outbox: Outbox) -> ServerMessage:
    message = await outbox.take()
    assert message is not None
    return message


def test_only_the_newest_name_of_a_speaker_waits() -> None:
    outbox = Outbox(16)
    for name in ("Ada", "Bea", "Cyd"):
        outbox.put(Named(0, 1, name))
        outbox.put(Named(0, 2, name))
    assert [(m.speaker, m.name) for m in taken(outbox) if isinstance(m, Named)] == [(1, "Cyd"), (2, "Cyd")]


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
