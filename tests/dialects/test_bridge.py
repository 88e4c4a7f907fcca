"""What every dialect may rely on, with a small one made up for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from engine.fake import FakeScript
from streaming.dialects.dialect import Bye, Frame, Heard, Ignored, Translator
from streaming.sockets.bridge import REASON
from streaming.wire.errors import ProtocolError
from streaming.wire.messages import Audio, End, Ended, Error, Flush, Flushed, ServerMessage, Start
from tests.support.foreign import meet
from tests.support.sound import expected, s16, speech
from tests.support.virtual import settle
from tests.support.world import World, serving


class Plain(Translator):
    """Audio in binary frames; the words of text frames are commands. Hangs up after a minute of nothing."""

    def __init__(self, start: Start | None = None) -> None:
        self.start = start or Start()
        self.heard_at: list[float] = []

    def greet(self) -> Iterable[Heard]:
        return "hello", self.start

    def hear(self, frame: Frame) -> Iterable[Heard]:
        if isinstance(frame, bytes):
            yield Audio(frame)
            return
        for command in frame.split():
            if command == "end":
                yield End()
            elif command == "flush":
                yield Flush("x")
            elif command == "ping":
                yield "pong"
            elif command == "leave":
                yield Bye(1000, "as you like", ("bye",))
            elif command == "break":
                raise ProtocolError("broken", "broken: do not")
            else:
                yield Ignored((command,))

    def tick(self, quiet_s: float) -> Iterable[Heard]:
        self.heard_at.append(quiet_s)
        return (Bye(1011, "too quiet"),) if quiet_s >= 60 else ()

    def say(self, message: ServerMessage) -> Iterable[Frame]:
        match message:
            case Flushed():
                yield "flushed"
            case Ended(receipt=receipt):
                yield f"words {receipt.words}"
                yield f"samples {receipt.samples}"

    def close(self, code: int, error: Error | None) -> Bye:
        if error is None:
            return Bye(1000, "", ("done",))
        return Bye(4000, error.message, (f"error {error.code}",))


def transcript(world: World, id: str) -> list[str]:
    entry = world.services.sessions.find(id)
    assert entry is not None
    return [word.text for segment in entry.log.segments() for word in segment.words]


def test_a_stream_of_another_protocol() -> None:
    async def body(world: World) -> None:
        met = meet(world, Plain())
        audio = s16(speech("xx..x."))
        met.channel.say("ping unknown", audio[:1001], audio[1001:], "flush")
        await asyncio.sleep(5)
        assert met.channel.sent == ["hello", "pong", "flushed"]
        met.channel.say("end")
        await world.all_done()
        assert met.channel.sent[3:] == ["words 3", "samples 48000", "done"]
        assert met.channel.closed == (1000, "")
        assert met.ignored == [Ignored(("unknown",))]
        # Its session goes by the id that the dialect knew from the first.
        assert transcript(world, met.id) == expected("xx..x.")

    serving(body)


def test_what_a_dialect_makes_up_is_checked_like_what_a_client_sends() -> None:
    async def body(world: World) -> None:
        met = meet(world, Plain(Start(hotwords=("x" * 65,))))
        await world.all_done()
        assert met.channel.sent == ["hello", "error bad_field"]
        assert met.channel.closed is not None
        code, reason = met.channel.closed
        assert (code, reason[:8]) == (4000, "hotwords")

    serving(body)


def test_a_fault_counts_after_what_came_before_it_in_the_same_frame() -> None:
    async def body(world: World) -> None:
        met = meet(world, Plain())
        met.channel.say(s16(speech("xx..")), "flush break ping")
        await world.all_done()
        assert met.channel.sent == ["hello", "flushed", "words 2", "samples 32000", "error broken"]

    serving(body)


def test_a_lost_client_ends_its_session_at_once_with_its_words_kept() -> None:
    async def body(world: World) -> None:
        lost, left = meet(world, Plain()), meet(world, Plain())
        for met in (lost, left):
            met.channel.say(s16(speech("xx")))
        await settle()
        lost.channel.cut()
        left.channel.leave()
        await asyncio.sleep(2)  # not limits.resume_s
        assert world.services.sessions.active == 0
        for met in (lost, left):
            assert transcript(world, met.id) == expected("xx")

    serving(body)


def test_what_came_before_the_goodbye_is_heard_though_it_cannot_be_answered() -> None:
    async def body(world: World) -> None:
        met = meet(world, Plain())
        await settle()
        met.channel.say("ping", s16(speech("xx")), "ping", s16(speech("xx")), "ping")
        met.channel.leave()
        met.channel.closed = (1000, "")
        await asyncio.sleep(2)
        assert world.services.sessions.active == 0
        assert len(transcript(world, met.id)) == 4
        assert world.services.metrics.parted.value(reason="left") == 1

    serving(body)


def test_a_client_that_reads_nothing_is_cut_off_and_its_session_ends() -> None:
    async def body(world: World) -> None:
        met = meet(world, Plain(), buffer=0)
        await settle()
        met.channel.stop_reading()
        met.channel.say(s16(speech("xx")), "ping")
        await asyncio.sleep(world.services.limits.slow_reader_s + 2)
        assert met.channel.aborted
        assert world.services.sessions.active == 0
        assert transcript(world, met.id) == expected("xx")

    serving(body)


def test_a_dialect_hangs_up() -> None:
    async def body(world: World) -> None:
        asked, quiet = meet(world, Plain()), meet(world, dialect := Plain())
        asked.channel.say("leave ping")
        await asyncio.sleep(30)
        quiet.channel.say("ping")
        await asyncio.sleep(59)
        assert quiet.channel.closed is None
        await world.all_done()
        assert asked.channel.sent == ["hello", "bye"]
        assert asked.channel.closed == (1000, "as you like")
        assert quiet.channel.closed == (1011, "too quiet")
        assert dialect.heard_at == [*range(1, 30), *range(1, 61)]

    serving(body, idle_timeout_s=1000)


def test_where_the_client_is_not_read_it_is_not_quiet() -> None:
    """Back-pressure: nothing is heard because nobody listens."""

    async def body(world: World) -> None:
        met = meet(world, dialect := Plain())
        for _ in range(10):
            met.channel.say(s16(speech("xxxx")))
        await asyncio.sleep(7)
        assert met.channel.taken < 10
        assert dialect.heard_at == []
        met.channel.say("end")

    serving(body, FakeScript(delay_s=8.0), max_backlog_s=2.0)


def test_a_reason_is_as_long_as_it_may_be_and_whole() -> None:
    async def body(world: World) -> None:
        met = meet(world, Plain(Start(hotwords=("ü" * 65,))))
        await world.all_done()
        assert met.channel.closed is not None
        assert len(met.channel.closed[1].encode()) <= REASON

        class Long(Plain):
            def greet(self) -> Iterable[Heard]:
                return (Bye(1000, "x" + "ü" * 100),)

        long = meet(world, Long())
        await world.all_done()
        assert long.channel.closed == (1000, "x" + "ü" * 61)

    serving(body)


def test_a_server_that_drains_finishes_what_was_received() -> None:
    async def body(world: World) -> None:
        met = meet(world, Plain())
        met.channel.say(s16(speech("xx..")))
        await settle()
        assert await world.services.sessions.drain(10.0)
        late = meet(world, Plain())
        await world.all_done()
        assert met.channel.sent == ["hello", "words 2", "samples 32000", "error restarting"]
        assert late.channel.sent == ["error restarting"]

    serving(body)


def test_a_bug_of_a_dialect_is_told_to_the_client_and_ends_its_session_alone() -> None:
    class Buggy(Plain):
        def hear(self, frame: Frame) -> Iterable[Heard]:
            raise ZeroDivisionError

    async def body(world: World) -> None:
        met, other = meet(world, Buggy()), meet(world, Plain())
        await settle()
        met.channel.say("ping")
        other.channel.say(s16(speech("x.")))
        await asyncio.sleep(3)
        assert met.channel.sent == ["hello", "error internal"]
        assert world.services.sessions.active == 1
        other.channel.say("end")

    serving(body)
