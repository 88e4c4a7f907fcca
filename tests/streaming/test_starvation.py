"""An engine that answers one of two sessions with nothing: it is seen, repaired or told, and counted."""

from __future__ import annotations

import asyncio

import pytest

from engine.contract import Hypothesis, RecognitionTask
from engine.fake import FakeScript, words_of
from streaming.core.settings import SessionSettings
from tests.support.channel import MemoryChannel
from tests.support.sound import speech
from tests.support.world import END, START, World, check_end, committed, live, serving

AUDIO = speech("x" * 80)  # forty seconds without a pause
WORDS = [word.text for word in words_of(AUDIO)]


class Planted:
    """Answers whatever the second session asks with `answer`, on the first `rungs` of the ladder."""

    def __init__(self, answer: Hypothesis, rungs: int) -> None:
        self._answer = answer
        self._rungs = rungs
        self._sessions: list[str] = []

    def __call__(self, task: RecognitionTask) -> Hypothesis | None:
        if task.session not in self._sessions:
            self._sessions.append(task.session)
        starved = self._sessions.index(task.session) == 1
        return self._answer if starved and task.attempt < self._rungs else None


def play(answer: Hypothesis, rungs: int) -> tuple[MemoryChannel, World]:
    """What the starved session heard, after the other was seen not to notice."""
    played: list[tuple[MemoryChannel, World]] = []

    async def body(world: World) -> None:
        heard, starved = world.client(), world.client()
        heard.say(START)
        starved.say(START)
        async with asyncio.TaskGroup() as group:
            group.create_task(live(heard, AUDIO))
            await asyncio.sleep(0.05)
            group.create_task(live(starved, AUDIO))
        heard.say(END)
        starved.say(END)
        await world.all_done()
        assert committed(heard) == WORDS
        assert check_end(heard, AUDIO.size)["gap_samples"] == 0
        played.append((starved, world))

    serving(body, FakeScript(delay_s=0.05, says=Planted(answer, rungs)))
    return played[0]


def counted(world: World) -> dict[str, float]:
    starved = world.services.metrics.starved
    return {name: starved.value(outcome=name) for name in ("text", "gap", "no_speech")}


def test_a_session_in_a_rut_is_repaired() -> None:
    channel, world = play(Hypothesis(()), rungs=1)
    # The last half second, behind a seam, is too little speech to be missed.
    assert committed(channel) in (WORDS, WORDS[:-1])
    assert check_end(channel, AUDIO.size)["gap_samples"] == 0
    assert counted(world)["text"] >= 3
    assert counted(world)["gap"] == 0


def test_a_session_that_brings_no_text_is_told_so_while_it_speaks() -> None:
    channel, world = play(Hypothesis(()), rungs=9)
    assert committed(channel) == []
    receipt = check_end(channel, AUDIO.size)
    assert receipt["gap_samples"] >= AUDIO.size - 16_000
    gaps = channel.of("gap")
    assert {gap["cause"] for gap in gaps} == {"no_text"}
    longest = max(gap["end_ms"] - gap["start_ms"] for gap in gaps) / 1000
    assert longest <= SessionSettings().starve_s + 3
    assert counted(world)["gap"] >= 3
    assert counted(world)["text"] == 0


def test_noise_that_is_taken_for_speech_is_silence() -> None:
    channel, world = play(Hypothesis((), no_speech=0.9), rungs=9)
    assert check_end(channel, AUDIO.size)["silence_samples"] == AUDIO.size
    assert channel.of("gap") == []
    assert counted(world)["no_speech"] == pytest.approx(40 / SessionSettings().starve_s, abs=2)
