"""What runs beside something ends with it, and fails aloud."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from streaming.background import background, first_of
from streaming.sockets.relay import Through
from tests.support.channel import MemoryChannel
from tests.support.virtual import run


async def for_ever(seen: list[str], name: str = "other") -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.1)  # what ends needs a moment
        seen.append(name)


def others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {cast("asyncio.Task[Any]", asyncio.current_task())}


def test_the_first_that_ends_ends_the_others() -> None:
    async def play() -> None:
        seen: list[str] = []
        await first_of(for_ever(seen), asyncio.sleep(1))
        assert (seen, others()) == (["other"], set())

    run(play())


def test_whoever_is_cancelled_takes_all_of_them_along() -> None:
    async def play() -> None:
        seen: list[str] = []
        work = asyncio.create_task(first_of(for_ever(seen, "one"), for_ever(seen, "two")))
        await asyncio.sleep(1)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert (sorted(seen), others()) == (["one", "two"], set())

    run(play())


def test_what_one_raises_is_raised() -> None:
    async def fail() -> None:
        raise OSError("broken")

    async def play() -> None:
        seen: list[str] = []
        with pytest.raises(OSError, match="broken"):
            await first_of(for_ever(seen), fail())
        assert seen == ["other"]

    run(play())


def test_upkeep_that_fails_is_logged_and_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise OSError("broken")

    async def play() -> None:
        async with background(fail()):
            await asyncio.sleep(1)

    with caplog.at_level(logging.ERROR, "seamscribe"):
        run(play())
    assert [(r.message, r.exc_info is not None) for r in caplog.records] == [
        ("upkeep failed and is not done any more", True)
    ]


class Far:
    """Another process's socket, which says nothing."""

    def __init__(self, error: Exception | None = None) -> None:
        self.transport = self
        self.aborted = False
        self.error = error

    def abort(self) -> None:
        self.aborted = True

    async def recv(self) -> bytes:
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize("how", ["cancelled", "stopped", "left"])
def test_a_connection_led_on_leaves_nothing_however_it_ends(how: str) -> None:
    async def play() -> None:
        channel, far = MemoryChannel(), Far()
        through = Through(channel, cast("Any", far), 1.0)
        running = asyncio.create_task(through.run())
        await asyncio.sleep(1)
        match how:
            case "cancelled":
                running.cancel()
            case "stopped":
                through.stop()
            case "left":
                channel.cut()
        await asyncio.wait([running])
        assert (others(), far.aborted) == (set(), True)

    run(play())


@pytest.mark.parametrize("busy_s", [60.0, 600.0])
def test_a_process_that_is_not_read_from_for_a_while_is_waited_for_as_without_another_between(
    busy_s: float,
) -> None:
    """Its engine is behind, so it takes no audio: its client waits, and is not sent away."""

    class Busy(Far):
        taken: list[str | bytes]

        async def send(self, data: str | bytes) -> None:
            await asyncio.sleep(busy_s)
            self.taken.append(data)

    async def play() -> None:
        channel, far = MemoryChannel(), Busy()
        far.taken = []
        running = asyncio.create_task(Through(channel, cast("Any", far), 15.0).run())
        channel.say(b"one", b"two")
        await asyncio.sleep(2.5 * busy_s)
        if busy_s < 100:
            assert (far.taken, channel.closed) == ([b"one", b"two"], None)
            channel.cut()
        await running
        if busy_s > 100:
            assert channel.closed == (1012, "restarting")

    run(play())


def test_a_connection_led_on_that_fails_is_told_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        channel, far = MemoryChannel(), Far(RuntimeError("a bug"))
        await Through(channel, cast("Any", far), 1.0).run()
        assert channel.closed is not None
        assert (channel.closed[0], far.aborted) == (1011, True)

    with caplog.at_level(logging.ERROR, "seamscribe"):
        run(play())
    assert [r.message for r in caplog.records] == ["a connection to another process failed"]
