"""Names and terms that a client comes to expect while its session goes on."""

from __future__ import annotations

from engine.contract import Hypothesis, RecognitionTask
from engine.fake import FakeRecognizer
from tests.support.sound import speech
from tests.support.world import END, World, live, serving


class Listening(FakeRecognizer):
    """Remembers what it was told to expect."""

    def __init__(self) -> None:
        super().__init__()
        self.expected: list[tuple[str, ...]] = []
        self.likely: set[tuple[str, ...]] = set()

    async def recognize(self, task: RecognitionTask) -> Hypothesis:
        self.expected.append(task.hotwords)
        self.likely.add(task.likely)
        return await super().recognize(task)


def test_others_are_expected_from_the_next_decode_on() -> None:
    engine = Listening()

    async def body(world: World) -> None:
        channel = world.client()
        channel.say({"type": "start", "hotwords": ["Ada"]})
        await live(channel, speech("xxx..."))
        before = len(engine.expected)
        assert set(engine.expected) == {("Ada",)}
        channel.say({"type": "hotwords", "hotwords": ["Bo", "Cy"]})
        await live(channel, speech("xxx..."))
        assert set(engine.expected[before:]) == {("Bo", "Cy")}
        channel.say(END)
        await world.all_done()
        assert channel.closed == (1000, "done")

    serving(body, recognizer=engine)


def test_what_is_no_hotword_is_refused() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say({"type": "start"}, {"type": "hotwords", "hotwords": ["x" * 65]})
        await world.all_done()
        (error,) = channel.of("error")
        assert error["field"] == "hotwords[0]"
        assert "at most 200 texts" in error["message"]

    serving(body)


def test_the_engine_is_told_which_languages_to_expect() -> None:
    engine = Listening()

    async def body(world: World) -> None:
        channel = world.client()
        channel.say({"type": "start", "languages": ["cmn", "en"]})
        await live(channel, speech("xxx..."))
        channel.say(END)
        await world.all_done()

    serving(body, recognizer=engine)
    assert engine.likely == {("zh", "en")}, "by the codes that engines know"
