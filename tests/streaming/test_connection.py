"""One client against one server in virtual time: the protocol, failures, admission, drain."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract import FRAME, Audio, EngineError, Voice
from engine.fake import FakeScript
from streaming.core.settings import SessionSettings
from streaming.kept.transcripts import export
from streaming.sessions.decoding import RETRIES
from streaming.sessions.live import TICK_S
from streaming.sessions.services import settings_for
from streaming.wire.messages import Options, Start
from tests.support.sound import expected, s16, speech
from tests.support.virtual import VirtualLoop, settle
from tests.support.world import END, START, World, check_end, committed, live, serving


def test_a_whole_stream() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say({"type": "start", "language": "en", "options": {"max_delay_s": 2.0}})
        await settle()
        assert channel.sent[0]["type"] == "ready"
        assert channel.sent[0]["max_delay_ms"] == 2000
        await live(channel, speech("xxxx....xxx..."))
        channel.say({"type": "flush", "id": "one"})
        await asyncio.sleep(1)
        (flushed,) = channel.of("flushed")
        assert (flushed["id"], flushed["sample"]) == ("one", 14 * 8000)
        channel.say(s16(speech("x.")), END)
        await world.all_done()
        assert channel.closed == (1000, "done")
        receipt = check_end(channel, 16 * 8000)
        assert receipt["gap_samples"] == 0
        # The fake names a word by its place on the clock.
        assert committed(channel) == expected("xxxx....xxx...x.")
        assert receipt["words"] == len(committed(channel))
        # At least one acknowledgement a second, on the 16 kHz clock.
        samples = [ack["sample"] for ack in channel.of("ack")]
        assert len(samples) >= 7
        assert samples == sorted(samples)
        assert channel.sent[-1]["type"] == "end"

    serving(body)


def test_other_rates_and_encodings_give_the_same_words() -> None:
    async def body(world: World) -> None:
        slots = "xx...xxx.."
        for audio in (
            {"encoding": "pcm_f32le", "sample_rate": 48_000, "channels": 2},
            {"encoding": "pcm_s16le", "sample_rate": 8_000},
        ):
            channel = world.client()
            channel.say({"type": "start", "audio": audio})
            tone = speech(slots, audio["sample_rate"])  # type: ignore[arg-type]
            data = np.repeat(tone, 2).tobytes() if "channels" in audio else s16(tone)
            for start in range(0, len(data), 4999):
                channel.say(data[start : start + 4999])
                await asyncio.sleep(0.02)
            channel.say(END)
            await world.all_done()
            assert committed(channel) == expected(slots)
            check_end(channel, 80_000)

    serving(body)


def test_a_client_that_leaves_is_finished_for_the_record() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START)
        await live(channel, speech("xxxx"))
        id = channel.sent[0]["session"]
        channel.leave()
        await world.all_done()
        entry = world.services.sessions.find(id)
        assert entry is not None
        assert [w.text for s in entry.log.segments() for w in s.words] == expected("xxxx")
        assert "zero one two three" in export(entry.log, "text", id)
        assert world.services.metrics.closed.value(code="1000", reason="client_left") == 1

    # Slow enough that the last words are still being decoded when the client goes.
    serving(body, FakeScript(delay_s=1.0))


@pytest.mark.parametrize("packet", [3_200, 64_000])
def test_what_came_before_the_goodbye_is_heard_though_nothing_more_can_be_said(packet: int) -> None:
    """Who leaves while the engine is behind: that he is gone shows by writing before all is read."""
    audio = s16(speech("xxxx" * 10))

    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START, *(audio[at : at + packet] for at in range(0, len(audio), packet)))
        channel.leave()
        await asyncio.sleep(0.1)
        channel.closed = (1000, "")
        await world.all_done()
        entry = world.services.sessions.find(channel.sent[0]["session"])
        assert entry is not None
        assert entry.log.receipt is not None
        assert entry.log.receipt.samples == len(audio) // 2
        assert world.services.metrics.closed.value(code="1000", reason="client_left") == 1

    serving(body, FakeScript(delay_s=2.0), max_backlog_s=2.0)


def test_what_came_before_a_client_was_cut_off_is_heard() -> None:
    audio = s16(speech("xxxx" * 10))

    async def body(world: World) -> None:
        channel = world.client(buffer=0)
        await settle()
        channel.stop_reading()
        channel.say(START, *(audio[at : at + 3_200] for at in range(0, len(audio), 3_200)))
        await settle()
        entry = world.services.sessions.newest()
        await world.all_done()
        assert channel.aborted
        assert entry is not None
        assert entry.log.receipt is not None
        assert entry.log.receipt.samples == len(audio) // 2
        assert world.services.metrics.parted.value(reason="slow_reader") == 1

    serving(body, FakeScript(delay_s=2.0), max_backlog_s=2.0, slow_reader_s=1.0)


def test_one_too_many_is_told_when_to_come_back() -> None:
    async def body(world: World) -> None:
        first, second = world.client(), world.client()
        first.say(START)
        await settle()
        second.say(START)
        await settle()
        assert second.closed == (1013, "overloaded")
        assert second.sent[0]["retry_after_ms"] == 5000
        first.say(END)
        await settle()
        third = world.client()
        third.say(START, END)
        await world.all_done()
        assert third.closed == (1000, "done")

    serving(body, max_sessions=1)


def test_a_language_the_engine_does_not_know() -> None:
    async def body(world: World) -> None:
        channel, known = world.client(), world.client()
        channel.say({"type": "start", "language": "fr"})
        known.say({"type": "start", "language": "de"}, END)
        await world.all_done()
        assert channel.closed == (4400, "unsupported_language")
        assert (channel.sent[0]["field"], channel.sent[0]["message"][-6:]) == ("language", "en, de")
        assert known.closed == (1000, "done")

    serving(body, FakeScript(languages=("en", "de")))


def test_drain_gives_finals_and_receipts() -> None:
    async def body(world: World) -> None:
        channel, early = world.client(), world.client()
        channel.say(START)
        await live(channel, speech("xxx"))
        assert await world.services.sessions.drain(10.0)
        late = world.client()
        await world.all_done()
        assert committed(channel) == expected("xxx")
        assert check_end(channel, 24_000)["gap_samples"] == 0
        assert channel.sent[-1]["code"] == "restarting"
        assert "was finished" in channel.sent[-1]["message"]
        for refused in (early, late):
            assert "finished" not in refused.sent[-1]["message"]
            assert "no new session" in refused.sent[-1]["message"]
        assert channel.closed == early.closed == late.closed == (1012, "restarting")

    serving(body)


def test_drain_does_not_wait_for_a_hung_engine() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START)
        await live(channel, speech("xxx"))
        assert await world.services.sessions.drain(10.0)
        await world.all_done()
        (gap,) = channel.of("gap")
        assert gap["cause"] == "finish_deadline"
        lost = check_end(channel, 24_000)["gap_samples"]
        assert (
            f"{lost / 16_000:g} s of what the receipt counts are declared gaps" in channel.sent[-1]["message"]
        )
        assert channel.closed == (1012, "restarting")

    serving(body, FakeScript(delay_s=1e5))


def test_the_last_decodes_have_a_deadline() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START)
        await live(channel, speech("xxx..xx"))
        channel.say(END)
        await world.all_done()
        assert {gap["cause"] for gap in channel.of("gap")} == {"finish_deadline"}
        check_end(channel, 7 * 8000)
        assert channel.closed == (1000, "done")

    serving(body, FakeScript(delay_s=1e5), finish_s=5.0)


def test_the_receipt_is_the_last_message_even_when_an_ack_is_due_at_that_moment() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START, s16(speech("x.")), END)
        await world.all_done()
        assert channel.sent[-1]["type"] == "end"

    # The only decode ends in the very round of the event loop in which the ticker wakes.
    serving(body, FakeScript(delay_s=TICK_S - 1e-10))


def test_drain_in_the_middle_of_a_large_packet() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START, s16(speech("x" * 20)))
        await asyncio.sleep(0.5)
        assert world.services.metrics.paused.value(reason="engine") == 1
        assert await world.services.sessions.drain(60.0)
        await world.all_done()
        # The receipt says how much of the packet was taken; the client sends the rest elsewhere.
        receipt = check_end(channel)
        assert 0 < receipt["samples"] < 160_000
        assert receipt["samples"] % 16_000 == 0
        assert channel.closed == (1012, "restarting")

    serving(body, FakeScript(delay_s=2.0), max_backlog_s=1.0)


def test_drain_finishes_what_the_client_ended() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START)
        await live(channel, speech("xxx"))
        channel.say(END)
        await settle()
        assert await world.services.sessions.drain(10.0)
        assert channel.closed == (1000, "done")
        assert committed(channel) == expected("xxx")

    serving(body, FakeScript(delay_s=2.0))


def test_a_failing_engine_makes_gaps_not_silence() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START)
        await live(channel, speech("xxxx....xx..."))
        channel.say(END)
        await world.all_done()
        assert {gap["cause"] for gap in channel.of("gap")} == {"scripted"}
        receipt = check_end(channel, 13 * 8000)
        assert receipt["gap_samples"] > 0
        assert channel.closed == (1000, "done")
        assert world.services.metrics.gaps.value(cause="scripted") == len(channel.of("gap"))

    serving(body, FakeScript(delay_s=0.05, broken=lambda _: True))


def test_an_engine_always_busy_is_not_asked_for_ever() -> None:
    busy = EngineError("busy", "try later", retryable=True)

    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START)
        await live(channel, speech("xxx.."))
        channel.say(END)
        await world.all_done()
        assert {gap["cause"] for gap in channel.of("gap")} == {"busy"}
        assert world.engine.calls < 20
        assert world.services.metrics.retries.value(cause="busy") == RETRIES - 1
        check_end(channel, 5 * 8000)

    serving(body, FakeScript(failures=dict.fromkeys(range(1000), busy)))


def test_a_failure_now_and_then_costs_nothing() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START)
        await live(channel, speech("xxxxxx....xxx..."))
        channel.say(END)
        await world.all_done()
        assert committed(channel) == expected("xxxxxx....xxx...")
        assert check_end(channel)["gap_samples"] == 0

    hiccup = EngineError("hiccup", "once", retryable=True)
    serving(body, FakeScript(delay_s=0.05, failures=dict.fromkeys((0, 2, 5), hiccup)))


class BrokenDetector:
    """Fails on the first loud frame, as a bug of ours would."""

    def open(self) -> BrokenDetector:
        return self

    def feed(self, audio: Audio) -> list[Voice]:
        if audio.any():
            raise ZeroDivisionError
        return [Voice(cheap=False, neural=0.0)] * (audio.size // FRAME)


@pytest.mark.parametrize("packet", [3_200, 1 << 20], ids=["small", "large"])
def test_a_bug_takes_one_session_only(packet: int, caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        broken = World(replace(world.services, detector=BrokenDetector()), world.engine)
        channel, healthy = broken.client(), world.client()
        audio = s16(speech(".x"))
        channel.say(START, *(audio[at : at + packet] for at in range(0, len(audio), packet)))
        healthy.say(START, s16(speech("xx")), END)
        await broken.all_done()
        await world.all_done()
        assert channel.closed == (1011, "internal")
        assert channel.sent[-1]["code"] == "internal"
        assert "Traceback" not in channel.sent[-1]["message"]
        assert committed(healthy) == expected("xx")

    serving(body)
    assert sum("failed" in record.message for record in caplog.records) == 1


class NoDetector:
    """Cannot even be opened."""

    def open(self) -> BrokenDetector:
        raise ZeroDivisionError

    def feed(self, audio: Audio) -> list[Voice]:
        raise AssertionError


def test_a_bug_before_the_session_frees_its_place(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        broken = World(replace(world.services, detector=NoDetector()), world.engine)
        channel = broken.client()
        channel.say(START)
        await broken.all_done()
        assert channel.closed == (1011, "internal")
        assert [message["code"] for message in channel.sent] == ["internal"]
        assert world.services.sessions.active == 0
        assert world.services.metrics.refused.value(reason="internal") == 1
        healthy = world.client()
        healthy.say(START, s16(speech("xx")), END)
        await world.all_done()
        assert committed(healthy) == expected("xx")

    serving(body, max_sessions=1)
    assert [bool(record.exc_info) for record in caplog.records if record.levelname == "ERROR"] == [True]


def test_refused_clients_do_not_push_transcripts_out() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START, END)
        await world.all_done()
        for _ in range(250):
            world.client().say({"type": "start", "language": "fr"})
        await world.all_done()
        assert world.services.sessions.find(channel.sent[0]["session"]) is not None

    serving(body, FakeScript(languages=("en",)))


@given(st.floats(0.2, 3.0))
def test_any_pause_a_client_may_ask_for_makes_a_session(pause_s: float) -> None:
    settings = settings_for(Start(options=Options(pause_s=pause_s)), SessionSettings())
    gate = settings.gate()
    assert 2 * gate.pad <= gate.pause
    settings.window(30.0)


def test_a_pause_that_does_not_divide() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say({"type": "start", "options": {"pause_s": 0.33334}}, s16(speech("xx.")), END)
        await world.all_done()
        assert channel.closed == (1000, "done")
        assert committed(channel) == expected("xx.")

    serving(body)


def test_activity_is_told_where_it_is_wanted() -> None:
    async def body(world: World) -> None:
        wanted, not_wanted = world.client(), world.client()
        wanted.say({**START, "options": {"activity_pause_s": 0.3}})
        not_wanted.say(START)
        audio = speech("..xx..x...")
        await asyncio.gather(live(wanted, audio), live(not_wanted, audio))
        for channel in (wanted, not_wanted):
            channel.say(END)
        await world.all_done()
        told = [(m["speaking"], m["at_ms"]) for m in wanted.of("activity")]
        assert told == [(True, 1000), (False, 2000), (True, 3000), (False, 3500)]
        assert not_wanted.of("activity") == []
        for channel in (wanted, not_wanted):
            check_end(channel, audio.size)

    serving(body)


def test_while_the_server_is_frozen_nobody_is_silent_nor_stays_away() -> None:
    """Stopped for an hour, and continued: whoever speaks on, or comes back then, has its session."""

    async def body(world: World) -> None:
        speaking, away = world.client(), world.client()
        for channel in (speaking, away):
            channel.say(START)
            await live(channel, speech("xxx."))
        away.cut()
        await asyncio.sleep(1)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.freeze(3600)
        await asyncio.sleep(2)
        await live(speaking, speech("xx."))
        back = world.client()
        ready = away.sent[0]
        back.say({"type": "resume", "session": ready["session"], "token": ready["token"], "last_seq": 0,
                  "next_sample": 0})  # fmt: skip
        for channel in (speaking, back):
            channel.say(END)
        await world.all_done()
        assert (speaking.closed, back.closed) == ((1000, "done"), (1000, "done"))
        assert committed(speaking) == expected("xxx.xx.")
        assert committed(back) == expected("xxx.")

    serving(body)


def test_who_says_that_it_is_there_needs_no_audio() -> None:
    async def body(world: World) -> None:
        there, silent = world.client(), world.client()
        for channel in (there, silent):
            channel.say(START, s16(speech("x.")))
        for _ in range(20):
            there.say({"type": "alive"})
            await asyncio.sleep(5)
        assert silent.closed == (4408, "idle")
        assert there.closed is None
        await asyncio.sleep(12)
        assert there.closed == (4408, "idle")

    serving(body, idle_timeout_s=10.0)
