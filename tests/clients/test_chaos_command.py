"""The command as it is run: servers of its own, killed and left without disk."""

from __future__ import annotations

import asyncio

import pytest

from clients.chaos import main
from clients.chaos.run import CYCLE
from tests.support.server import server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.mark.parametrize("kind", ["kill -9", "full disk"])
def test_a_server_that_crashes_loses_nothing(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "4", "--only", str(CYCLE.index(kind)), "--kind", kind]) == 0
    said = capsys.readouterr().out
    assert f"| {kind} | 1 | 0 | " in said
    assert "nothing held" in said


def test_nothing_to_do_and_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", "http://127.0.0.1:9", "--kind", "kill -9"]) == 2
    assert main(["--url", "http://127.0.0.1:9", "--scenarios", "1"]) == 3
    assert "no server" in capsys.readouterr().err


async def test_a_server_of_others_is_watched_by_its_gauges(capsys: pytest.CaptureFixture[str]) -> None:
    async with server() as running:
        assert await asyncio.to_thread(main, ["--url", running.http(""), "--scenarios", "2"]) == 0
    assert "nothing held" in capsys.readouterr().out
