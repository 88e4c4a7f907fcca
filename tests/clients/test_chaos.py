"""The chaos client sees what is broken: a server that keeps its promises passes, one that does not fails."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import threading
from collections.abc import Callable

import pytest

from clients.aio import connect
from clients.captions import Captions
from clients.chaos.line import Fault, line
from clients.chaos.machine import Level, level, of_process
from clients.chaos.report import table
from clients.chaos.run import (
    CONTROL,
    CYCLE,
    KINDS,
    ON_LINE,
    STALLING,
    Leak,
    Result,
    Scenario,
    Target,
    controls,
    run_one,
    scenarios,
    warm,
)
from clients.chaos.run import settled as settled_
from clients.chaos.scene import breaches, difference, draw, edits
from clients.chaos.talk import Trial, converse
from engine.contract import Hypothesis, RecognitionTask
from engine.fake import SCRIPTS, SLOT, FakeScript, word, words_of
from streaming.sessions.live import Live
from tests.support.server import server
from tests.support.waiting import until


def words(*slots: int) -> list[str]:
    return [word(slot).text for slot in slots]


@pytest.mark.parametrize(
    ("said", "received", "broken"),
    [
        (words(0, 1, 3), None, False),
        (words(0, 1), None, True),
        (words(0, 1, 1, 3), None, True),
        (words(0, 3, 1), None, True),
        (words(0, 2, 3), None, True),
        (words(0, 1), 3 * SLOT, False),
        (words(0), 2 * SLOT, False),
        (words(0), 3 * SLOT, True),
        (words(0, 1, 3), 3 * SLOT + 1, False),
        (words(0, 1, 3), 3 * SLOT, True),
    ],
)
def test_words_lost_doubled_or_changed_are_seen(said: list[str], received: int | None, broken: bool) -> None:
    assert bool(difference("xx.x", said, received)) is broken


def test_edits_count_words() -> None:
    assert edits(["a", "b", "c"], ["a", "b", "c"]) == 0
    assert edits(["a", "b", "c"], ["a", "x", "c", "d"]) == 2
    assert edits([], ["a"]) == edits(["a"], []) == 1


def test_a_session_without_a_receipt_is_a_breach() -> None:
    assert breaches(draw(random.Random(1)), Captions()) == ["no receipt"]


def test_the_same_seed_is_the_same_scenario() -> None:
    first, again = list(scenarios(5, 60, KINDS)), list(scenarios(5, 60, KINDS))
    assert first == again
    assert {s.kind for s in first} == set(KINDS) == set(CYCLE)
    assert [s for s in first if s.kind == "cut"] == list(scenarios(5, 60, ["cut"]))
    (one, other) = (draw(s.random()) for s in (first[0], again[0]))
    assert one == other
    assert one != draw(first[1].random())


@pytest.mark.e2e
@pytest.mark.parametrize("kind", sorted(set(ON_LINE) - {"half-open", "abort", STALLING}))
async def test_a_server_that_keeps_its_promises_passes(kind: str) -> None:
    async with server(FakeScript(delay_s=0.01), max_sessions=200) as running:
        result = await run_one(Target(running.http("")), Scenario(7, 0, kind))
    assert result.trial.faults == []
    assert result.trial.receipts == result.trial.sessions
    assert result.trial.struck or kind == "slow reader"


@pytest.mark.e2e
@pytest.mark.parametrize("number", range(3))
async def test_sessions_of_clients_that_went_come_to_their_end(number: int) -> None:
    async with server(FakeScript(delay_s=0.01), resume_s=0.3) as running:
        result = await run_one(Target(running.http("")), Scenario(number, 0, "abort"))
    assert result.trial.faults == []


@pytest.mark.e2e
async def test_an_engine_that_stalls_and_fails_passes() -> None:
    async with server(SCRIPTS["stalling"]) as running:
        result = await run_one(Target("", running.http("")), Scenario(7, 0, STALLING))
    assert result.trial.faults == []


@pytest.mark.e2e
async def test_an_engine_that_loses_words_is_found_out() -> None:
    def deaf(task: RecognitionTask) -> Hypothesis:
        said = task.prefix[-1].end if task.prefix else task.start
        heard = [w for w in words_of(task.audio, task.start) if w.start >= said]
        return Hypothesis(tuple(w for w in heard if not w.text.endswith("five")), language="en")

    async with server(FakeScript(says=deaf)) as running:
        result = await run_one(Target(running.http("")), Scenario(7, 0, "cut"))
    assert any("words came" in fault for fault in result.trial.faults)


@pytest.mark.e2e
async def test_nobody_there_is_a_fault_and_not_a_crash() -> None:
    result = await run_one(Target("http://127.0.0.1:9"), Scenario(7, 0, "takeover"))
    assert any("no server answers" in fault for fault in result.trial.faults)


@pytest.mark.e2e
async def test_a_line_is_cut_at_the_byte() -> None:
    trial, drawn = Trial(), random.Random(3)
    async with server() as running, line(running.http(""), [Fault(up=40_000, how="reset")]) as broken:
        await converse(broken.url, draw(drawn), drawn, trial)
    assert (trial.faults, trial.resumes, broken.struck) == ([], 1, 1)


@pytest.mark.e2e
async def test_a_refused_connection_uses_no_fault_up() -> None:
    """Or a server at its limit would spare its clients."""
    trial, drawn = Trial(), random.Random(3)
    async with (
        server(max_sessions=1) as running,
        line(running.http(""), [Fault(up=40_000, how="reset")]) as broken,
    ):
        async with connect(running.http("")) as first:
            waiting = asyncio.create_task(converse(broken.url, draw(drawn), drawn, trial))
            await until(lambda: running.services.metrics.refused.value(reason="overloaded"))
            await first.end()
            async for _ in first:
                pass
        await waiting
    assert (trial.faults, trial.resumes, broken.struck) == ([], 1, 1)


async def test_what_a_server_still_holds_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clients.chaos.run.RESUME_S", -30.0)

    async def look() -> Level:
        counts = {"tasks": 5.0, "memory_blocks": 110.0}
        return Level({"sessions_active": 1.0}, counts, files=12, threads=90)

    before = Level({"sessions_active": 0.0}, {"tasks": 4.0, "memory_blocks": 100.0}, files=11, threads=5)
    leak = await settled_("server", look, before)
    assert leak.problems == [
        "sessions_active is 1",
        "tasks is 5, 4 before",
        "12 open files, 11 before",
        "90 threads, 5 before",
    ]


Undo = Callable[[], object]


def _thread() -> Undo:
    stop = threading.Event()
    threading.Thread(target=stop.wait, args=(60,), daemon=True).start()
    return stop.set


PLANTS: dict[str, Callable[[], Undo]] = {
    "nothing": lambda: lambda: None,
    "tasks": lambda: asyncio.create_task(asyncio.sleep(60)).cancel,
    "threads": _thread,
    "files": lambda: open(os.devnull).close,  # noqa: SIM115 - that is the leak
    "sockets": lambda: socket.socket().close,
    "memory_blocks": lambda: [str(number) for number in range(200_000)].clear,
}


@pytest.mark.e2e
@pytest.mark.parametrize("plant", PLANTS)
async def test_a_leak_is_found(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each kind one planted at the end of a session; without one nothing is held."""
    undone: list[Undo] = []
    conclude = Live._conclude

    def leaking(live: Live) -> None:
        conclude(live)
        undone.append(PLANTS[plant]())

    async with server(FakeScript(delay_s=0.01)) as running:
        target = Target(running.http(""))

        async def look() -> Level:
            seen = await level(target.url)
            return Level(seen.gauges, seen.counts, *of_process(os.getpid()))

        await warm(target.url, Trial())
        before = await look()
        monkeypatch.setattr(Live, "_conclude", leaking)
        monkeypatch.setattr("clients.chaos.run.RESUME_S", -28.0)
        result = await run_one(target, Scenario(7, 0, "cut"))
        leak = await settled_("server", look, before)
    assert result.trial.faults == []
    for undo in undone:
        undo()
    name = {"files": "open files", "sockets": "open files"}.get(plant, plant)
    assert [name in problem for problem in leak.problems] == ([] if plant == "nothing" else [True])


def test_the_table_has_a_row_for_each_kind_and_their_sum() -> None:
    failed = Trial(faults=["x"], struck=2, sessions=1, words=7)
    results = [Result(Scenario(1, 0, "cut"), failed, 2.0), Result(Scenario(1, 1, "burst"), Trial(), 1.0)]
    results.append(Result(Scenario(1, 2, CONTROL), Trial(apart=1, expected=50), 1.0))
    failed.apart, failed.expected = 3, 60
    text = table(results, [Leak("server", Level({}), Level({}), ["1 left"])], 3.0)
    assert "| cut | 1 | 1 | 2 | 0 | 1 | 0 | 7 | 2 s |" in text
    assert "| no fault | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 1 s |" in text
    assert "| all | 3 | 1 | 2 | 0 | 1 | 0 | 7 | 2 s |" in text
    assert "without faults: 3 of 60 (5.0%);" in text
    assert "no fault again: 1 of 50 (2.0%)." in text
    assert "server: 1 left" in text


async def test_a_control_is_a_client_without_a_fault() -> None:
    chosen = controls(5, 60, 30)
    assert [(s.kind, s.number) for s in chosen[:2]] == [(CONTROL, 60), (CONTROL, 61)]
    async with server(FakeScript(delay_s=0.01)) as running:
        trial = (await run_one(Target(running.http("")), chosen[0])).trial
    assert (trial.faults, trial.struck, trial.resumes, trial.receipts) == ([], 0, 0, 1)
