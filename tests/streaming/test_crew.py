"""The parent of several processes: scripts in their place."""

from __future__ import annotations

import asyncio
import logging
import sys

import pytest

from streaming import crew
from streaming.crew import Crew
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

LIVES = """
import sys, time
def beat(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        print(flush=True)
        time.sleep(0.02)
beat(0.2)
print("listening", flush=True)
if sys.argv[-1] == "1":
    sys.stdin.readline()  # as if it were frozen
beat(600)
"""


async def test_a_process_that_says_nothing_is_told_of_and_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(crew, "BEAT_S", 0.3)
    children: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def starting(*command: str, **options: object) -> asyncio.subprocess.Process:
        children.append(await start(*command, **options))  # type: ignore[arg-type]
        return children[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", starting)
    stop = asyncio.Event()
    with caplog.at_level(logging.WARNING, "seamscribe"):
        running = asyncio.create_task(Crew([sys.executable, "-c", LIVES], 0, 2, 5.0).run(stop))
        await until(lambda: "says nothing" in caplog.text)
        frozen = caplog.records[0].getMessage()
        assert frozen.startswith("process 1 (")
        for child in children:
            assert child.stdin is not None
            child.stdin.write(b"\n")
        await until(lambda: "process 1 goes on" in caplog.text)
        stop.set()
        await running
    assert "process 0" not in caplog.text
    assert capfd.readouterr().out == "listening\n"
