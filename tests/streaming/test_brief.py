"""Under load refreshes hear less, and when it is gone all again; nobody's text notices. In virtual time."""

from __future__ import annotations

import asyncio

from engine.contract import SAMPLE_RATE, RecognitionTask
from engine.fake import FakeScript, words_of
from tests.support.sound import speech
from tests.support.world import END, START, World, check_end, committed, live, serving

AUDIO = speech(("x" * 40 + "--") * 6)  # two minutes
SHORT = speech("x" * 80)
WORDS = [word.text for word in words_of(AUDIO)]


class Heard:
    """Notes of every window how much of it was committed before."""

    def __init__(self) -> None:
        self.known_s: list[float] = []

    def __call__(self, task: RecognitionTask) -> None:
        if task.prefix:
            self.known_s.append((task.prefix[-1].end - task.start) / SAMPLE_RATE)

    def mean(self) -> float:
        """Since the last call."""
        mean, self.known_s = sum(self.known_s) / len(self.known_s), []
        return mean


def test_refreshes_are_brief_while_many_speak() -> None:
    heard = Heard()

    async def body(world: World) -> None:
        dispatcher = world.services.dispatcher
        one = world.client()
        async with asyncio.TaskGroup() as group:
            one.say(START)
            group.create_task(live(one, AUDIO))
            await asyncio.sleep(15)
            assert not dispatcher.load.brief
            alone = heard.mean()
            many = [world.client() for _ in range(8)]
            for channel in many:
                channel.say(START)
                group.create_task(live(channel, SHORT))
                await asyncio.sleep(0.1)
            await asyncio.sleep(20)
            assert dispatcher.load.brief
            heard.mean()
            await asyncio.sleep(10)
            assert dispatcher.load.brief
            assert heard.mean() < 0.7 * alone
            await asyncio.sleep(20)
            for channel in many:
                channel.say(END)
            await asyncio.sleep(20)
            assert not dispatcher.load.brief
            heard.mean()
            await asyncio.sleep(15)
            assert heard.mean() > 0.9 * alone
        one.say(END)
        await world.all_done()
        assert committed(one) == WORDS
        assert check_end(one, AUDIO.size)["gap_samples"] == 0

    serving(body, FakeScript(delay_s=0.12, says=heard, concurrency=1))
