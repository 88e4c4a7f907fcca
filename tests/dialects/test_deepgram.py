"""Deepgram's live protocol, as its clients rely on it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import pytest
from websockets.asyncio.client import connect

from engine.fake import FakeScript
from streaming.dialects.attribution import WAIT_MS
from streaming.dialects.deepgram import LEAST_PAUSE_S, WAY, Deepgram, deny, wishes_of
from streaming.dialects.deepgram_finals import LONG_MS
from streaming.dialects.deepgram_shapes import plain
from streaming.dialects.dialect import Handshake, Ignored
from streaming.dialects.query import Query
from streaming.wire.errors import ProtocolError
from streaming.wire.messages import Ack, Activity, AudioFormat, Encoding, Flush, Hotwords, Speaker, Track
from tests.support.foreign import Met, meet, segment
from tests.support.server import server
from tests.support.sound import expected, s16, speech, wav
from tests.support.virtual import settle
from tests.support.world import World, serving

RAW = "model=nova-3&encoding=linear16&sample_rate=16000"
FINALIZE, CLOSE, KEEP = ('{"type": "%s"}' % name for name in ("Finalize", "CloseStream", "KeepAlive"))  # noqa: UP031


def deepgram(query: str = "") -> Deepgram:
    handshake = Handshake("the-id", "2026-01-01T00:00:00.000Z", Query.parse(f"{RAW}&{query}"))
    return Deepgram(handshake)


def got(met: Met, type: str = "Results") -> list[Any]:
    return [m for m in map(json.loads, met.channel.sent) if m["type"] == type]


def said(frames: Any) -> list[Any]:
    return [json.loads(frame) for frame in frames]


def alternative(result: Any) -> Any:
    (one,) = result["channel"]["alternatives"]
    return one


def words(results: list[Any]) -> list[str]:
    """Of all finals."""
    return [w["punctuated_word"] for r in results if r["is_final"] for w in alternative(r)["words"]]


async def speak(met: Met, slots: str) -> None:
    for slot in slots:
        met.channel.say(s16(speech(slot)))
        await asyncio.sleep(0.5)


def test_a_stream_from_query_to_metadata() -> None:
    async def body(world: World) -> None:
        query = "interim_results=true&vad_events=True&utterance_end_ms=1000&punctuate=true&endpointing=500"
        met = meet(world, deepgram(query))
        slots = "xxx.....xx....."
        await speak(met, slots)
        met.channel.say(CLOSE)
        await world.all_done()
        assert met.channel.closed == (1000, "")
        results = got(met)
        for result in results:
            assert set(result) == {
                "type", "channel_index", "start", "duration", "is_final", "speech_final", "from_finalize",
                "channel", "metadata",
            }  # fmt: skip
            assert result["channel_index"] == [0, 1]
            assert result["metadata"]["request_id"] == "the-id"
            assert {"transcript", "confidence", "words"} <= set(alternative(result))
        assert words(results) == expected(slots)
        # Final ranges follow each other, and hold their words.
        finals, at = [r for r in results if r["is_final"]], 0.0
        for result in finals:
            assert result["start"] == pytest.approx(at)
            at = result["start"] + result["duration"]
            for word in alternative(result)["words"]:
                assert result["start"] <= word["start"] <= word["end"] <= at + 1e-6
                assert word["confidence"] == 0.9
        assert [r["speech_final"] for r in finals] == [True, True]
        assert any(alternative(r)["transcript"] for r in results if not r["is_final"])
        assert [e["timestamp"] for e in got(met, "SpeechStarted")] == [0.0, 4.0]
        assert [e["last_word_end"] for e in got(met, "UtteranceEnd")] == [1.45, 4.95]
        (end,) = got(met, "Metadata")
        assert json.loads(met.channel.sent[-1]) == end
        assert (end["duration"], end["channels"], end["request_id"]) == (7.5, 1, "the-id")
        audio = b"".join(s16(speech(slot)) for slot in slots)
        assert end["sha256"] == hashlib.sha256(audio).hexdigest()
        assert end["created"] == "2026-01-01T00:00:00.000Z"

    serving(body)


def test_nothing_is_told_that_was_not_asked_for() -> None:
    async def body(world: World) -> None:
        met = meet(world, deepgram())
        await speak(met, "xx.....")
        met.channel.say(CLOSE)
        await world.all_done()
        assert {json.loads(frame)["type"] for frame in met.channel.sent} == {"Results", "Metadata"}
        assert all(result["is_final"] for result in got(met))

    serving(body)


def test_finalize_is_always_answered_and_twice_with_nothing_new() -> None:
    async def body(world: World) -> None:
        met = meet(world, deepgram())
        met.channel.say(FINALIZE)
        await asyncio.sleep(1)
        met.channel.say(s16(speech("xx")), FINALIZE)
        await asyncio.sleep(1)
        met.channel.say(FINALIZE, FINALIZE)
        await asyncio.sleep(1)
        answers = [alternative(r)["transcript"] for r in got(met) if r["from_finalize"]]
        assert answers == ["", "zero one", "", ""]
        assert all(r["is_final"] for r in got(met))
        assert words(got(met)) == expected("xx")
        met.channel.say(s16(speech(".x")), CLOSE)
        await world.all_done()
        assert words(got(met)) == [*expected("xx"), "three"]

    serving(body)


def test_who_closes_right_after_close_stream_loses_nothing_and_breaks_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As Pipecat does."""

    async def body(world: World) -> None:
        met = meet(world, deepgram())
        met.channel.say(s16(speech("xx")), CLOSE)
        await settle()
        met.channel.leave()
        await world.all_done()
        entry = world.services.sessions.find(met.id)
        assert entry is not None
        assert [w.text for s in entry.log.segments() for w in s.words] == expected("xx")

    serving(body)
    assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def test_without_audio_and_keepalive_it_is_over_after_ten_seconds() -> None:
    async def body(world: World) -> None:
        silent, kept = meet(world, deepgram()), meet(world, deepgram())
        for _ in range(100):
            kept.channel.say(KEEP)
            await asyncio.sleep(4)
        assert silent.channel.closed is not None
        code, reason = silent.channel.closed
        assert (code, reason[:8]) == (1011, "NET-0001")
        assert kept.channel.closed is None
        assert kept.channel.sent == []
        kept.channel.say(s16(speech("x")), CLOSE, KEEP, FINALIZE)
        await world.all_done()
        assert words(got(kept)) == expected("x")

    serving(body, idle_timeout_s=60)


def test_channels_are_told_apart() -> None:
    async def body(world: World) -> None:
        met = meet(world, deepgram("multichannel=true&channels=2&utterance_end_ms=1000&interim_results=true"))
        both = b"".join(
            a + b
            for left, right in (("x.....", "......"), ("......", "xx...."))
            for a, b in zip(*(_pairs(s16(speech(slots))) for slots in (left, right)), strict=True)
        )
        met.channel.say(both, '{"type": "Finalize", "channel": 1}')
        await asyncio.sleep(3)
        met.channel.say(FINALIZE, CLOSE)
        await world.all_done()
        results = got(met)
        heard = {0: ["zero"], 1: ["six", "seven"]}
        for track, texts in heard.items():
            assert words([r for r in results if r["channel_index"] == [track, 2]]) == texts
        answers = [r["channel_index"][0] for r in results if r["from_finalize"]]
        assert answers == [1, 0, 1]
        assert got(met, "Metadata")[0]["channels"] == 2

    serving(body)


def _pairs(data: bytes) -> list[bytes]:
    return [data[at : at + 2] for at in range(0, len(data), 2)]


def test_errors_are_told_and_closed_with_deepgrams_codes() -> None:
    async def body(world: World) -> None:
        broken, late = meet(world, deepgram()), meet(world, deepgram("language=xx-YY"))
        broken.channel.say("no JSON")
        await asyncio.sleep(1)
        for met in (broken, late):
            assert met.channel.closed is not None
            told = json.loads(met.channel.sent[-1])
            assert (told["type"], told["variant"]) == ("Error", "DATA-0000")
            assert met.channel.closed[0] == 1008

    serving(body, FakeScript(languages=("en",)))


def test_words_that_are_told_late_are_told_once_and_with_who_spoke() -> None:
    dialect = deepgram("diarize=true&punctuate=true")
    done = segment(1, ["Hello,", "you."], final=True)
    assert said(dialect.say(done)) == []
    (told,) = said(dialect.say(Speaker(2, 1, 2, 2, frozen=False)))
    assert [word["speaker"] for word in alternative(told)["words"]] == [1, 1]
    assert alternative(told)["transcript"] == "Hello, you."
    # A later split moves words that were told; nobody knows who spoke the next ones.
    assert said(dialect.say(segment(1, ["Hello,"], final=True))) == []
    assert said(dialect.say(segment(2, ["you."], first=1, final=True))) == []
    assert said(dialect.say(segment(3, ["Hm."], first=2, final=True))) == []
    assert said(dialect.say(Ack(9, 16 * (1200 + WAIT_MS - 100)))) == []
    (late,) = said(dialect.say(Ack(9, 16 * (1200 + WAIT_MS))))
    assert ["speaker" in word for word in alternative(late)["words"]] == [False]


def test_committed_words_of_a_long_segment_are_final_before_its_end() -> None:
    dialect = deepgram("interim_results=true")
    texts = [f"w{n}" for n in range(LONG_MS // 400 + 2)]
    first, second = said(dialect.say(segment(1, texts, partial=" and so on")))
    assert (first["is_final"], first["speech_final"]) == (True, False)
    assert words([first]) == texts
    assert alternative(second)["transcript"] == "and so on"
    assert said(dialect.say(segment(1, texts, partial=" and so on"))) == []
    (end,) = said(dialect.say(segment(1, texts, final=True)))
    assert (alternative(end)["transcript"], end["speech_final"]) == ("", True)


def test_where_the_speech_goes_on_nothing_has_stopped() -> None:
    dialect = deepgram()
    list(dialect.say(Activity(1, True, 0)))
    (cut,) = said(dialect.say(segment(1, ["a"], final=True)))
    list(dialect.say(Activity(3, False, 800)))
    (stopped,) = said(dialect.say(segment(2, ["b"], first=1, final=True)))
    list(dialect.say(Activity(5, True, 2000)))
    (again,) = said(dialect.say(segment(3, ["c"], first=2, final=True)))
    assert [one["speech_final"] for one in (cut, stopped, again)] == [False, True, True]
    never = deepgram("endpointing=false")
    (one,) = said(never.say(segment(1, ["a"], final=True)))
    assert not one["speech_final"]


def test_the_end_of_an_utterance_is_told_late_where_its_words_are_late() -> None:
    dialect = deepgram("interim_results=true&utterance_end_ms=1000")
    list(dialect.say(Activity(1, True, 0)))
    list(dialect.say(Activity(2, False, 400)))
    list(dialect.say(Activity(3, True, 2000)))
    list(dialect.say(segment(1, ["a"], final=True)))
    (end,) = said(dialect.say(Ack(4, 16 * 2500)))
    assert (end["type"], end["last_word_end"]) == ("UtteranceEnd", 0.3)
    # The next one is not over.
    list(dialect.say(segment(2, ["f"], first=5, final=True)))
    assert said(dialect.say(Ack(6, 16 * 9000))) == []


def test_what_the_query_asks_for() -> None:
    query = Query.parse(
        f"{RAW}&channels=2&multichannel=true&language=en-US&keyterm=Ada&keyterm=Grace+H&keywords=Bob:2"
        "&keywords=x&endpointing=10&xyzzy=1&numerals=true"
    )
    wishes = wishes_of(query)
    assert wishes.start.audio == AudioFormat(Encoding.PCM_S16LE, 16_000, 2)
    assert wishes.start.tracks == (Track(), Track())
    assert wishes.start.language == "en"
    assert wishes.start.hotwords == ("Ada", "Grace H", "Bob", "x")
    assert wishes.start.options.pause_s == LEAST_PAUSE_S
    assert query.unread == ("xyzzy", "numerals")
    assert wishes_of(Query.parse("encoding=mulaw")).start.audio == AudioFormat(Encoding.MULAW, 8_000)
    for contained in ("", "encoding=ogg-opus&sample_rate=48000"):
        assert wishes_of(Query.parse(contained)).start.audio == AudioFormat(Encoding.CONTAINER)
    assert wishes_of(Query.parse(f"{RAW}&language=multi")).start.language is None
    assert wishes_of(Query.parse(f"{RAW}&diarize_model=latest")).start.options.speakers is True


@pytest.mark.parametrize(
    ("query", "field"),
    [
        (f"{RAW}&redact=pci", "redact"),
        (f"{RAW}&callback=http://x", "callback"),
        ("encoding=speex", "encoding"),
        (f"{RAW}&channels=99", "channels"),
        ("encoding=linear16&sample_rate=1", "sample_rate"),
        (f"{RAW}&diarize=perhaps", "diarize"),
        (f"{RAW}&endpointing=soon", "endpointing"),
    ],
)
def test_what_cannot_be_is_refused_by_name(query: str, field: str) -> None:
    with pytest.raises(ProtocolError) as told:
        wishes_of(Query.parse(query))
    assert told.value.field == field
    body, headers = deny(400, told.value.message)
    assert body["err_msg"] == told.value.message
    assert field in headers["dg-error"]


def configure(dialect: Deepgram, **wishes: Any) -> tuple[list[Any], dict[str, Any]]:
    """What follows from it for the session, and how it is answered."""
    *found, answer = dialect.hear(json.dumps({"type": "Configure", **wishes}))
    assert isinstance(answer, str)
    return found, json.loads(answer)


def test_keyterms_are_changed_while_the_stream_goes_on() -> None:
    dialect, success = deepgram("keyterm=Bo"), {"type": "ConfigureSuccess", "request_id": "the-id"}
    assert configure(dialect, keyterms=["Ada", " Ada", "Lovelace"]) == (
        [Hotwords(("Ada", "Lovelace"))],
        {**success, "keyterms": ["Ada", "Lovelace"]},
    )
    assert configure(dialect, keyterms=[]) == ([Hotwords(())], {**success, "keyterms": []})
    assert configure(dialect, keyterms=None) == ([], success)
    assert configure(dialect, features={"numerals": True}) == ([Ignored(("feature numerals",))], success)
    for wrong in ("Ada", ["x" * 65], [1], [str(n) for n in range(201)]):
        found, told = configure(dialect, keyterms=wrong)
        assert found == []
        assert (told["type"], told["request_id"]) == ("ConfigureFailure", "the-id")
        assert told["code"] == "CONFIGURE_KEYTERM_LIMIT_EXCEEDED"
        assert "at most 200 texts" in told["description"]


def test_redact_is_for_servers_that_do() -> None:
    query = f"{RAW}&redact=pci&redact=numbers"
    with pytest.raises(ProtocolError, match=r"privacy\.redact"):
        wishes_of(Query.parse(query))
    parsed = Query.parse(query)
    assert wishes_of(parsed, redacts=True) == wishes_of(Query.parse(RAW))
    assert parsed.unread == ()
    assert isinstance(WAY.open(Handshake("x", "", Query.parse(query), redacts=True)), Deepgram)


def test_commands_that_are_not_known() -> None:
    dialect = deepgram()
    assert list(dialect.hear('{"type": "Dance"}')) == [Ignored(("type Dance",))]
    assert WAY.open(Handshake("x", "", Query.parse(RAW))).headers == {"dg-request-id": "x"}


@pytest.mark.e2e
async def test_a_file_without_an_encoding_says_itself_what_it_is() -> None:
    """As samples do that pass a file, or a browser's recorder, on."""
    slots = "xxx...xx.."
    data, results = wav(s16(speech(slots))), []
    async with server() as running, connect(f"ws://{running.address}/v1/listen", proxy=None) as socket:
        for at in range(0, len(data), 10_000):
            await socket.send(data[at : at + 10_000])
        await socket.send(CLOSE)
        async for frame in socket:
            results.append(json.loads(frame))
    assert results[-1]["type"] == "Metadata"
    assert words([one for one in results if one["type"] == "Results"]) == expected(slots)
    assert socket.close_code == 1000


def test_plain_words() -> None:
    assert [plain(text) for text in ("Hello,", "it's", "“U.S.”", "...", "Ünï!")] == [
        "hello", "it's", "u.s", "", "ünï",
    ]  # fmt: skip


@pytest.mark.parametrize("channel", ["true", "1.0", "1", "-1", "null", '"1"', "[1]", "9" * 40])
def test_finalize_takes_any_channel(channel: str) -> None:
    query = "encoding=linear16&channels=2&multichannel=true"
    (flush,) = deepgram(query).hear(f'{{"type": "Finalize", "channel": {channel}}}')
    assert flush == Flush("1")
