"""The simulation of a fleet: the same options give the same figures, its engine is about the one that was
measured, and nothing is lost in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clients.bench.fleet import ENGINES, MEASURED, ROUTING, Fleet, Run, simulate

SMALL = Fleet(
    sessions=600, engines=2, fronts=3, slots=64, arrive_s=20.0, hold_s=20.0, engine=ENGINES["tiny.en"]
)


def test_a_seed_is_a_run() -> None:
    assert simulate(SMALL) == simulate(SMALL) != simulate(replace(SMALL, seed=2))


@pytest.mark.parametrize(("name", "streams"), MEASURED)
def test_the_engine_is_about_as_fast_as_the_one_that_was_measured(name: str, streams: int) -> None:
    p50, p95, rate = MEASURED[name, streams]
    found = simulate(Fleet(streams, 1, 1, 1024, 1.0, 30.0, ENGINES[name], admission=False, stretching=False))
    assert found.p50_s == pytest.approx(p50, rel=0.4, abs=0.15)
    assert found.p95_s == pytest.approx(p95, rel=0.5, abs=0.2)
    assert found.refreshes_a_session_s == pytest.approx(rate, rel=0.15)


def test_whoever_came_asks_as_long_as_it_goes_on_and_is_answered() -> None:
    run = Run(SMALL)
    found = run.run()
    assert (found.sessions, found.refusals) == (600, 0)
    asking = (run.next < float("inf")).sum()
    under_way = run.running.sum() + sum(len(front.waiting) for front in run.fronts)
    assert asking + under_way == 600
    assert run.load.sum() == run.running.sum() == sum(map(len, run.queues)) + sum(map(len, run.batches))
    assert found.decodes_a_second == pytest.approx(0.95 * 600, rel=0.05)


def test_what_an_engine_had_when_it_died_is_answered_by_others() -> None:
    run = Run(replace(SMALL, engines=4, lose=1))
    whole, lost = simulate(replace(SMALL, engines=4)), run.run()
    assert run.load[0] == 0
    assert lost.sessions == 600
    assert lost.decodes_a_second == pytest.approx(whole.decodes_a_second, rel=0.02)
    assert lost.p95_s > whole.p95_s


def test_who_does_not_fit_is_refused_and_the_others_do_not_suffer() -> None:
    crowd = replace(SMALL, sessions=2400, slots=32, hold_s=40.0)
    kept, all_in = simulate(crowd), simulate(replace(crowd, admission=False))
    assert all_in.sessions == 2400
    assert 500 < kept.sessions < 1400
    assert kept.refusals > 1000
    assert kept.p95_s < 0.6 * all_in.p95_s


def test_who_knows_which_engine_is_less_busy_answers_sooner() -> None:
    crowd = replace(SMALL, engines=8, sessions=2400)
    turn, two, some = (simulate(replace(crowd, routing=name)).p99_s for name in ROUTING)
    assert two < turn < some
