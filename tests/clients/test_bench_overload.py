"""More clients than fit, against a house that lets in a few, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pytest

from clients.aio import ClientError
from clients.audio import RATE
from clients.bench.corpus import Clip
from clients.bench.overload import (
    AGAIN_S,
    FULL_S,
    LONGEST_S,
    Crowd,
    alone,
    figures,
    fill,
    goals,
    overload,
    press,
)
from clients.dialing import Disconnected, Refused
from clients.play import Arrival, Listener, Playback
from tests.support.virtual import run

from .build import ready, segment, words

CLIPS = [Clip(f"clip {n}", np.zeros(RATE * n, np.int16), "red green", "en") for n in (30, 40)]


@dataclass
class House:
    """Lets in `room` clients, one every `step_s` at the most; words come after `delay_s`, and `late_s` more
    for each client beside the first."""

    room: int
    step_s: float = 0.0
    delay_s: float = 1.0
    late_s: float = 0.0
    refusal_s: float = 0.25
    error: ClientError | None = None
    """How every stream ends that was let in."""
    live: int = 0
    shut_until: float = 0.0

    async def enter(self, playback: Playback, pieces: Iterable[bytes], listen: Listener) -> None:
        loop = asyncio.get_running_loop()
        if self.live >= self.room or loop.time() < self.shut_until:
            await asyncio.sleep(self.refusal_s)
            raise Refused("full", code="http_503", retryable=True)
        self.shut_until = loop.time() + self.step_s
        self.live += 1
        first = ready(1)
        playback.captions.receive(first)
        listen(playback, Arrival(0.0, first))
        try:
            for _ in pieces:
                await asyncio.sleep(1.0)
            if self.error is not None:
                raise self.error
            playback.captions.receive(segment(2, 1, 1, words("red green", 1000), final=True))
            late = self.delay_s + self.late_s * (self.live - 1)
            playback.committed_s += [word.end_ms / 1000 + late for word in playback.captions.transcript]
        finally:
            self.live -= 1


def silent(_: str) -> None:
    pass


def test_filling_goes_on_while_some_are_let_in() -> None:
    """Most are refused meanwhile, for the server looks what each step costs."""
    house = House(room=7, step_s=0.8 * FULL_S)
    crowd = run(fill(house.enter, CLIPS, silent))
    assert crowd.most == 7
    assert crowd.refused_s == pytest.approx([house.refusal_s] * (crowd.clients - 7))
    assert crowd.live == house.live == 0


def test_filling_ends_where_nobody_is_let_in_and_where_it_would_not() -> None:
    nobody, everybody = (run(fill(House(room).enter, CLIPS, silent)) for room in (0, 10**6))
    assert (nobody.most, nobody.clients) == (0, FULL_S)
    assert everybody.most == everybody.clients == LONGEST_S


def test_who_is_refused_comes_again_and_takes_the_place_of_who_left() -> None:
    async def main() -> tuple[Crowd, float]:
        loop = asyncio.get_running_loop()
        crowd = await press(House(room=3).enter, CLIPS, 9, seconds=90.0)
        return crowd, loop.time()

    crowd, took = run(main())
    assert crowd.most == 3
    assert len(crowd.served) > 6  # three places in ninety seconds, clips of thirty and forty
    assert crowd.errors.count == 0
    assert crowd.errors.length == 2 * len(crowd.served)
    assert 90 - AGAIN_S <= took <= 90 + max(clip.seconds for clip in CLIPS)


def test_one_alone_comes_again_where_it_is_refused() -> None:
    """Else its delays would be those of a part of the clips."""
    crowd = run(alone(House(room=1, step_s=60.0).enter, CLIPS))
    assert [playback.name for playback in crowd.served] == [clip.name for clip in CLIPS]
    assert len(crowd.refused_s) == 30 // (AGAIN_S + 0.25) + 1
    assert run(alone(House(room=0).enter, CLIPS)).served == []


def judged(house: House) -> tuple[list[bool], list[Crowd]]:
    crowds = run(overload(house.enter, CLIPS, 3.0, 60.0, lambda: 99.0, silent))
    return [goal.met for goal in goals(crowds)], crowds


def test_a_house_that_lets_in_as_many_as_it_can_serve_meets_its_goals() -> None:
    met, crowds = judged(House(room=4))
    assert met == [True, True, True]
    assert [crowd.clients for crowd in crowds] == [1, 3 + FULL_S, 12]  # the fourth came at 3 s
    assert figures(crowds[-1]) | {"words": 0, "served": 0, "refusals": 0, "load": 0} == {
        "phase": "pressed",
        "clients": 12,
        "live_at_once": 4,
        "served": 0,
        "words": 0,
        "commit_p50": pytest.approx(1.0),
        "commit_p95": pytest.approx(1.0),
        "commit_p99": pytest.approx(1.0),
        "wer": 0.0,
        "refusals": 0,
        "refused_max": pytest.approx(0.25),
        "rss_mib": 99.0,
        "load": 0,
        "unclear": [],
    }


@pytest.mark.parametrize(
    ("house", "met"),
    [
        (House(room=4, late_s=0.2), [False, True, True]),  # 1.6 s where one alone waits 1 s
        (House(room=4, refusal_s=1.5), [True, False, True]),
        (House(room=4, error=Disconnected("gone", code="close_1006", retryable=True)), [False, True, False]),
        (House(room=4, error=Refused("no key", code="http_401", retryable=False)), [False, True, False]),
    ],
    ids=["words come late", "refusals come late", "streams break", "refused for another reason"],
)
def test_what_misses_a_goal(house: House, met: list[bool]) -> None:
    assert judged(house)[0] == met
