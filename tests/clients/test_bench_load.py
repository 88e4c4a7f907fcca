"""Many streams at once: what they say, when, and what all of them come to."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.audio import BYTES_PER_SECOND, RATE
from clients.bench.corpus import GAP_S, Clip
from clients.bench.load import Load, Plan, Script, chorus, load, script
from clients.bench.load_report import figures, steady, targets
from clients.dialing import Refused
from clients.play import Arrival, Listener, Pace, Playback
from engine.fake import FakeScript
from streaming.wire.messages import Ended
from tests.support.server import server
from tests.support.virtual import run

from .build import ready, receipt, segment, words

CLIPS = [Clip(f"clip {n}", np.full(RATE * n, n, np.int16), f"word{n}", "en") for n in (2, 3, 5)]


def plan(streams: int = 4, seconds: float = 20.0, ramp_s: float = 4.0, **more: object) -> Plan:
    return Plan("http://127.0.0.1:1", streams, seconds, ramp_s, **more)  # type: ignore[arg-type]


@given(st.integers(0, 999), st.floats(1, 60), st.integers(1, 5))
def test_a_stream_says_whole_utterances_with_pauses_for_so_long(
    number: int, seconds: float, seed: int
) -> None:
    said = script(CLIPS, number, plan(seconds=seconds, ramp_s=0, seed=seed))
    assert all(GAP_S[0] <= gap <= GAP_S[1] for gap, _ in said.turns)
    lasts = [gap + clip.seconds for gap, clip in said.turns]
    assert sum(lasts) >= seconds > sum(lasts[:-1])
    names = [clip.name for _, clip in said.turns]
    for first in range(0, len(names) - 2, 3):  # the whole corpus before anything comes again
        assert len(set(names[first : first + 3])) == 3
    pcm = b"".join(said.pieces())
    assert len(pcm) % 2 == 0
    assert abs(len(pcm) / BYTES_PER_SECOND - sum(lasts)) < 1e-3 * len(lasts)
    spoken = np.frombuffer(pcm, "<i2")
    assert np.count_nonzero(spoken) == sum(len(clip.pcm) for _, clip in said.turns)
    assert max(map(len, said.pieces())) <= BYTES_PER_SECOND * GAP_S[1]
    assert said.reference.split() == [clip.reference for _, clip in said.turns]


def test_streams_differ_and_come_again_the_same() -> None:
    orders = [tuple(script(CLIPS, n, plan(seconds=60)).turns) for n in (0, 1, 0)]
    assert orders[0] == orders[2] != orders[1]


def test_a_plan_that_nobody_can_keep_is_refused() -> None:
    with pytest.raises(ValueError, match="--ramp 30"):
        plan(seconds=20, ramp_s=30)
    with pytest.raises(ValueError, match="--streams 0"):
        plan(streams=0)
    with pytest.raises(ValueError, match="--processes 5"):
        asyncio.run(load(plan(streams=4), CLIPS, 5))


@dataclass
class House:
    """Commits each utterance's word `delay_s` after its end, while more than `few` are live `late_s` more."""

    delay_s: float = 1.0
    late_s: float = 0.0
    few: int = 0
    refuses: int = -1
    live: int = 0
    began: list[float] = field(default_factory=list)

    async def enter(self, playback: Playback, said: Script, listen: Listener) -> None:
        loop = asyncio.get_running_loop()
        zero = loop.time()
        self.began.append(zero)
        if len(self.began) - 1 == self.refuses:
            raise Refused("full", code="http_503", retryable=True)
        self.live += 1

        def hear(message: object) -> None:
            now = loop.time() - zero
            playback.captions.receive(message)  # type: ignore[arg-type]
            playback.committed_s += [now] * (len(playback.captions.transcript) - len(playback.committed_s))
            listen(playback, Arrival(now, message))  # type: ignore[arg-type]

        hear(ready(1))
        at, seq = 0.0, 2
        for gap, clip in said.turns:
            at += gap + clip.seconds
            await asyncio.sleep(zero + at - loop.time())
            late = self.delay_s + (self.late_s if self.live > self.few else 0.0)
            word = words(clip.reference, round(1000 * at) - 400)
            await asyncio.sleep(zero + at + late - loop.time())
            hear(segment(seq, seq, 1, word, first_word=seq - 2, final=True))
            seq += 1
        playback.sent = round(at * RATE)
        hear(Ended(seq, receipt(playback.sent, seq - 2)))
        self.live -= 1


def spoken(house: House, chosen: Plan) -> Load:
    heard = run(chorus(chosen, CLIPS, range(chosen.streams), 0.0, house.enter))
    return Load(chosen, 1, heard)


def test_streams_begin_one_after_the_other_within_the_ramp() -> None:
    house = House()
    spoken(house, plan(streams=4, ramp_s=4.0))
    assert house.began == pytest.approx([0.0, 1.0, 2.0, 3.0], abs=1e-6)


def test_only_what_is_spoken_while_all_are_live_counts() -> None:
    """A server that is slow with all four of them is not measured with one."""
    found = spoken(House(delay_s=0.5, late_s=2.0, few=3), plan(streams=4, seconds=30, ramp_s=12))
    total = figures(found, None)
    assert total.commit.count < total.words == total.commit_all.count
    assert total.commit.p50 == pytest.approx(2.5, abs=0.01)
    assert total.commit_all.mean is not None
    assert total.commit_all.mean < 2.4
    since, until = steady(found.heard)
    assert since == pytest.approx(9.0, abs=1e-6)  # the last begins
    assert until == pytest.approx(min(one.over for one in found.heard))


def test_whole_runs_meet_their_targets_and_slow_ones_do_not() -> None:
    good = figures(spoken(House(), plan()), None)
    assert [goal.met for goal in targets(good)] == [True] * 4
    assert good.errors.count == 0
    assert good.coverage == 1
    assert good.lag.count == 4
    slow = figures(spoken(House(delay_s=3.5), plan()), None)
    assert [goal.met for goal in targets(slow)] == [False, True, True, True]
    assert [goal.met for goal in targets(slow, 4.0)] == [True] * 4


def test_a_stream_that_is_refused_and_a_process_that_is_lost_are_faults() -> None:
    found = spoken(House(refuses=2), plan())
    assert figures(found, None).faults == 1
    assert [fault for one in found.heard for fault in one.faults] == ["stream 3: full"]
    del found.heard[0]
    assert figures(found, None).faults == 2


def test_several_processes_speak_to_a_server() -> None:
    async def main() -> Load:
        quick = Pace(speed=20.0)
        async with server(FakeScript(delay_s=0.0)) as running:
            chosen = Plan(f"http://{running.address}", 3, 6.0, 0.5, pace=quick)
            noise = np.random.default_rng(1).normal(0, 9000, 2 * RATE).astype(np.int16)
            return await load(chosen, [Clip("noise", noise, "", "en")], 2)

    found = asyncio.run(main())
    assert sorted(one.number for one in found.heard) == [0, 1, 2]
    assert found.lost == []
    assert [fault for one in found.heard for fault in one.faults] == []
    total = figures(found, None)
    assert total.words > 0
    assert total.audio_s > 18
    assert total.bench_cpu_s_per_audio_s > 0
