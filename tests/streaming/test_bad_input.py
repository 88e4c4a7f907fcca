"""Whatever a client does wrong, too fast or too slowly: a defined answer, and no committed text lost."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

from engine.fake import FakeScript
from streaming.sessions.live import FLUSHES
from tests.support.sound import expected, s16, speech
from tests.support.virtual import settle
from tests.support.world import END, START, World, check_end, committed, live, serving

FIRST_MESSAGES = [
    ("hello", "malformed", 4400),
    ('{"type":"start","version":9}', "unsupported_version", 4400),
    ('{"type":"start","audio":{"encoding":"mp3"}}', "unsupported_encoding", 4400),
    ('{"type":"start","audio":{"sample_rate":4000}}', "unsupported_sample_rate", 4400),
    ('{"type":"start","audio":{"channels":99}}', "unsupported_channels", 4400),
    ('{"type":"end"}', "start_expected", 4400),
    (b"\0\0", "start_expected", 4400),
    (b"\0" * 2000, "too_big", 1009),
]


@pytest.mark.parametrize(("message", "code", "close"), FIRST_MESSAGES)
def test_a_bad_first_message(message: str | bytes, code: str, close: int) -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(message)
        await world.all_done()
        (error,) = channel.sent
        assert (error["type"], error["code"], error["seq"]) == ("error", code, 0)
        assert error["message"]
        assert channel.closed == (close, code)

    serving(body, max_packet_bytes=1024)


LATER_MESSAGES = [
    ("what?", "malformed", 4400),
    ('{"type":"pause"}', "unknown_type", 4400),
    ('{"type":"start"}', "started", 4400),
    ('{"type":"flush"}', "missing_field", 4400),
    (b"\0" * (1 << 21), "too_big", 1009),
]


@pytest.mark.parametrize(("message", "code", "close"), LATER_MESSAGES)
def test_a_bad_later_message_costs_no_text(message: str | bytes, code: str, close: int) -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START)
        await live(channel, speech("xxx"))
        channel.say(message, b"\0\0" * 800)
        await world.all_done()
        # What came before is finished and accounted for, then comes the reason, then the close.
        assert committed(channel) == expected("xxx")
        check_end(channel, 24_000)
        assert (channel.sent[-1]["type"], channel.sent[-1]["code"]) == ("error", code)
        assert channel.closed == (close, code)

    serving(body)


def test_not_a_number() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say({"type": "start", "audio": {"encoding": "pcm_f32le"}})
        channel.say(speech("xx").tobytes(), np.full(800, np.nan, "<f4").tobytes())
        await world.all_done()
        assert committed(channel) == expected("xx")
        assert channel.sent[-1]["field"] == "audio.encoding"
        assert channel.closed == (4400, "bad_audio")

    serving(body)


def test_odd_bytes_and_end_without_audio() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START, END)
        await world.all_done()
        assert check_end(channel, 0)["spans"] == []
        odd = world.client()
        data = s16(speech("xx..")) + b"\x7f"
        odd.say(START, *(data[i : i + 777] for i in range(0, len(data), 777)), END)
        await world.all_done()
        check_end(odd, 32_000)
        assert committed(odd) == expected("xx..")
        assert channel.closed == odd.closed == (1000, "done")

    serving(body)


def test_nothing_may_follow_end() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START, s16(speech("xx")), END, s16(speech("x")))
        await world.all_done()
        check_end(channel, 16_000)
        assert channel.closed == (4400, "after_end")

    serving(body)


def test_an_hour_of_silence() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START)
        packet = b"\0" * 320_000
        for _ in range(360):
            channel.say(packet)
            await asyncio.sleep(10)
        channel.say(END)
        await world.all_done()
        receipt = check_end(channel, 3600 * 16_000)
        assert receipt["silence_samples"] == receipt["samples"]
        assert len(receipt["spans"]) == 1
        assert not channel.of("segment")
        assert world.engine.calls == 0
        assert len(channel.of("ack")) >= 360

    serving(body)


def test_faster_than_real_time_is_read_as_fast_as_it_is_decoded() -> None:
    async def body(world: World) -> None:
        slots = ("x" * 9 + "..") * 30
        channel = world.client()
        data = s16(speech(slots))
        packets = [data[i : i + 3200] for i in range(0, len(data), 3200)]
        channel.say(START, *packets, END)
        await asyncio.sleep(1.0)
        # Five seconds may wait undecoded: the socket is not read to its end.
        assert channel.taken < len(packets) / 2
        assert world.services.metrics.paused.value(reason="engine") >= 1
        await world.all_done()
        assert committed(channel) == expected(slots)
        assert check_end(channel, len(slots) * 8000)["gap_samples"] == 0
        assert channel.closed == (1000, "done")

    serving(body, FakeScript(delay_s=0.05, per_audio_s=0.1), max_backlog_s=5.0)


def test_a_client_that_reads_late_misses_nothing() -> None:
    async def body(world: World) -> None:
        slots = "xxxx..." * 20
        channel = world.client(buffer=2)
        channel.say(START)
        await settle()
        channel.stop_reading()
        audio = s16(speech(slots))
        for start in range(0, len(audio), 8000):
            channel.say(audio[start : start + 8000])
            await asyncio.sleep(0.05)
        channel.say(END)
        assert not channel.of("end")
        channel.read_again()
        await world.all_done()
        assert committed(channel) == expected(slots)
        check_end(channel, len(slots) * 8000)
        # Revisions nobody could read were left out, finals were not.
        assert len([s for s in channel.of("segment") if s["final"]]) == 20
        assert len(channel.of("segment")) < 40

    serving(body, slow_reader_s=1e6)


def test_a_client_that_never_reads_is_cut_off_and_kept_on_record() -> None:
    async def body(world: World) -> None:
        slots = "xxxx..." * 40
        channel = world.client(buffer=1)
        channel.say(START)
        await settle()
        (entry,) = [world.services.sessions.find(channel.sent[0]["session"])]
        channel.stop_reading()
        await live(channel, speech(slots), 4000)
        await world.all_done()
        assert channel.aborted
        assert entry is not None
        words = [word.text for segment in entry.log.segments() for word in segment.words]
        assert words == expected(slots)[: len(words)]
        assert len(words) > 10
        assert entry.log.receipt is not None
        assert world.services.metrics.parted.value(reason="slow_reader") == 1
        assert world.services.metrics.closed.value(code="1008", reason="expired") == 1

    serving(body, slow_reader_s=15.0)


def test_reading_stops_while_the_outbox_is_full() -> None:
    async def body(world: World) -> None:
        channel = world.client(buffer=0)
        channel.say(START)
        await settle()
        channel.stop_reading()
        channel.say(*[json.dumps({"type": "flush", "id": str(i)}) for i in range(500)])
        await asyncio.sleep(1)
        assert 16 <= channel.taken <= 20
        channel.read_again()
        channel.say(END)
        await world.all_done()
        assert [f["id"] for f in channel.of("flushed")] == [str(i) for i in range(500)]

    serving(body, outbox=16)


def test_silent_clients_are_closed() -> None:
    async def body(world: World) -> None:
        channel, mute = world.client(), world.client()
        channel.say(START, s16(speech("x")))
        await world.all_done()
        assert mute.closed == (4408, "idle")
        assert [m["type"] for m in mute.sent] == ["error"]
        assert channel.closed == (4408, "idle")
        assert committed(channel) == ["zero"]
        check_end(channel, 8000)

    serving(body)


def test_a_session_has_a_longest_length() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START)
        await live(channel, speech("x" * 12))
        await world.all_done()
        assert channel.closed == (1008, "session_too_long")
        assert 32_000 < check_end(channel)["samples"] <= 32_000 + 1600

    serving(body, max_session_s=2.0)


def test_a_refused_client_that_does_not_read_is_cut_off() -> None:
    async def body(world: World) -> None:
        channel = world.client(buffer=0)
        channel.stop_reading()
        channel.say("nonsense")
        await world.all_done()
        assert channel.aborted
        gone = world.client()
        gone.leave()
        await world.all_done()
        assert not gone.sent

    serving(body)


def test_a_client_that_reads_all_but_the_close() -> None:
    async def body(world: World) -> None:
        channel = world.client(buffer=3)
        channel.stop_reading()
        channel.say(START, END)
        await world.all_done()
        assert [m["type"] for m in channel.sent] == ["ready", "end"]
        assert channel.aborted

    serving(body)


def test_flushes_are_bounded_while_a_decode_runs() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START, s16(speech("xx")))
        await settle()
        channel.say(*[json.dumps({"type": "flush", "id": str(i)}) for i in range(500)])
        await settle(2000)
        # Start, the audio and the flushes that may wait; nothing more until the decode is over.
        assert channel.taken == 2 + FLUSHES
        assert not channel.of("flushed")
        assert world.services.metrics.paused.value(reason="flush") == 1
        channel.say(END)
        await world.all_done()
        assert [f["id"] for f in channel.of("flushed")] == [str(i) for i in range(500)]
        assert committed(channel) == expected("xx")

    serving(body, FakeScript(delay_s=5.0))


EMPTY_ONES = [b"", "flush", b"\0"]


@pytest.mark.parametrize("message", EMPTY_ONES)
def test_messages_without_audio_keep_no_session_alive(message: str | bytes) -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START, s16(speech("x")))
        await settle()
        for number in range(12):
            channel.say({"type": "flush", "id": str(number)} if message == "flush" else message)
            await asyncio.sleep(10)
        await settle()
        assert channel.closed == (4408, "idle")
        assert committed(channel) == ["zero"]

    serving(body, idle_timeout_s=60.0)


def test_a_client_that_waits_for_its_flush_is_not_idle() -> None:
    async def body(world: World) -> None:
        channel = world.client()
        channel.say(START, s16(speech("x.")), {"type": "flush", "id": "f"})
        await asyncio.sleep(20)
        assert channel.closed is None
        assert [f["id"] for f in channel.of("flushed")] == []
        await asyncio.sleep(9)
        assert [f["id"] for f in channel.of("flushed")] == ["f"]
        channel.say(END)
        await world.all_done()
        assert channel.closed == (1000, "done")

    serving(body, FakeScript(delay_s=25.0), idle_timeout_s=10.0)
