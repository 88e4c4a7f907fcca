"""OpenAI's Realtime transcription, as its clients rely on it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from engine.fake import FakeScript
from streaming.dialects.attribution import WAIT_MS as UNNAMED_MS
from streaming.dialects.dialect import Bye, Handshake, Ignored
from streaming.dialects.openai_items import WAIT_MS, Items
from streaming.dialects.openai_realtime import BETA, HELD, PIECE, QUIET_S, OpenAIRealtime
from streaming.dialects.openai_session import LEAST_PAUSE_S, Wishes
from streaming.dialects.query import Query
from streaming.wire.errors import CloseCode, ProtocolError
from streaming.wire.messages import (
    Activity,
    Alive,
    Audio,
    AudioFormat,
    Encoding,
    Error,
    Flush,
    Gap,
    Hotwords,
    Named,
    Speaker,
    Start,
)
from tests.support.foreign import Met, meet, segment
from tests.support.sound import expected, s16, speech
from tests.support.world import World, serving

TEXT = "conversation.item.input_audio_transcription"
BUFFER = "input_audio_buffer"
COMMIT, CLEAR = ('{"type": "%s.%s"}' % (BUFFER, name) for name in ("commit", "clear"))  # noqa: UP031
VAD = {"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 600, "silence_duration_ms": 500}


def dialect(query: str = "intent=transcription", subprotocols: tuple[str, ...] = ()) -> OpenAIRealtime:
    return OpenAIRealtime(Handshake("id", "", Query.parse(query), subprotocols))


def update(**fields: Any) -> str:
    """Fields of `session.audio.input`."""
    session = {"type": "transcription", "audio": {"input": fields}}
    return json.dumps({"type": "session.update", "session": session})


def append(data: bytes) -> str:
    return json.dumps({"type": f"{BUFFER}.append", "audio": base64.b64encode(data).decode()})


def got(met: Met) -> list[dict[str, Any]]:
    return [json.loads(frame) for frame in met.channel.sent]


def of(events: Iterable[dict[str, Any]], type: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == type]


async def speak(met: Met, slots: str, rate: int = 24_000) -> None:
    for slot in slots:
        met.channel.say(append(s16(speech(slot, rate))))
        await asyncio.sleep(0.5)


def check(events: list[dict[str, Any]]) -> None:
    """No `error`; each event has an id of its own; deltas add up to what is completed; items are a chain."""
    assert not of(events, "error")
    assert len({event["event_id"] for event in events}) == len(events)
    texts: dict[str, str] = {}
    for event in of(events, f"{TEXT}.delta"):
        texts[event["item_id"]] = texts.get(event["item_id"], "") + event["delta"]
    for event in of(events, f"{TEXT}.completed"):
        assert event["transcript"] == texts.get(event["item_id"], "")
        assert event["content_index"] == 0
        assert event["usage"]["type"] == "duration"
        assert event["usage"]["seconds"] >= 0
    before = None
    for event in of(events, f"{BUFFER}.committed"):
        assert event["previous_item_id"] == before
        before = event["item_id"]
    committed = [event["item_id"] for event in of(events, f"{BUFFER}.committed")]
    assert [event["item"]["id"] for event in of(events, "conversation.item.added")] == committed
    done = [event["item"]["id"] for event in of(events, "conversation.item.done")]
    assert done == committed[: len(done)]


def transcripts(events: list[dict[str, Any]]) -> list[str]:
    return [event["transcript"] for event in of(events, f"{TEXT}.completed")]


def test_turns_by_voice_activity() -> None:
    async def body(world: World) -> None:
        met = meet(world, dialect())
        met.channel.say(update(format={"type": "audio/pcm", "rate": 24000}, turn_detection=VAD))
        slots = "xxx.....xx......"
        await speak(met, slots)
        met.channel.leave()
        await world.all_done()
        events = got(met)
        check(events)
        assert [e["type"] for e in events[:2]] == ["session.created", "session.updated"]
        assert events[1]["session"]["audio"]["input"]["turn_detection"] == VAD
        assert events[1]["session"]["object"] == "realtime.transcription_session"
        started, stopped = (of(events, f"{BUFFER}.speech_{what}") for what in ("started", "stopped"))
        assert [e["audio_start_ms"] for e in started] == [0, 4000]
        assert [e["audio_end_ms"] for e in stopped] == [1500, 5000]
        items = [e["item_id"] for e in started]
        assert [e["item_id"] for e in stopped] == items
        assert [e["item_id"] for e in of(events, f"{TEXT}.completed")] == items
        assert transcripts(events) == ["zero one two", "eight nine"]
        assert " ".join(transcripts(events)).split() == expected(slots)
        assert [e["usage"]["seconds"] for e in of(events, f"{TEXT}.completed")] == [1.5, 1.0]
        order = [e["type"].rpartition(".")[2] for e in events if items[0] in str(e)]
        firsts = list(dict.fromkeys(kind for kind in order if kind not in ("delta", "segment")))
        assert firsts[:5] == ["speech_started", "speech_stopped", "committed", "added", "completed"]

    serving(body)


def test_turns_by_commit_and_an_empty_one_is_answered() -> None:
    async def body(world: World) -> None:
        met = meet(world, dialect())
        met.channel.say(update(turn_detection=None))
        met.channel.say(COMMIT)
        await asyncio.sleep(1)
        await speak(met, "xx")
        met.channel.say(COMMIT)
        await asyncio.sleep(1)
        await speak(met, "xx")
        met.channel.say(COMMIT, COMMIT)
        await asyncio.sleep(1)
        events = got(met)
        check(events)
        assert transcripts(events) == ["", "zero one", "two three", ""]
        assert [e["usage"]["seconds"] for e in of(events, f"{TEXT}.completed")] == pytest.approx(
            [0, 1.0, 1.0, 0], abs=0.15
        )
        assert not of(events, f"{BUFFER}.speech_started")
        met.channel.leave()

    serving(body)


def test_audio_before_any_session_update() -> None:
    """As Pipecat may send it: what the update says counts all the same."""

    async def body(world: World) -> None:
        met = meet(world, dialect("model=any"))
        met.channel.say(append(b"\0\0" * 960))
        met.channel.say(update(format={"type": "audio/pcmu"}, transcription={"language": "en-US"}))
        await asyncio.sleep(0.1)
        entry = world.services.sessions.find(met.id)
        assert entry is not None
        assert entry.ready is not None
        assert entry.ready.audio == AudioFormat(Encoding.MULAW, 8000)
        assert entry.ready.language == "en"
        met.channel.leave()

        met = meet(world, dialect())
        await speak(met, "xx")
        met.channel.say(COMMIT)
        await asyncio.sleep(1)
        assert transcripts(got(met)) == ["zero one"]
        met.channel.leave()

    serving(body)


def test_what_was_cleared_is_not_told() -> None:
    async def body(world: World) -> None:
        met = meet(world, dialect())
        await speak(met, "xx")
        met.channel.say(COMMIT)
        await speak(met, "xx")
        met.channel.say(CLEAR)
        await speak(met, "xx")
        met.channel.say(COMMIT)
        await asyncio.sleep(1)
        events = got(met)
        check(events)
        assert len(of(events, f"{BUFFER}.cleared")) == 1
        assert transcripts(events) == ["zero one", "four five"]
        assert not any("two" in e["text"] for e in of(events, f"{TEXT}.segment"))
        met.channel.leave()

    serving(body)


@pytest.mark.parametrize("commits", [False, True])
def test_a_commit_may_come_beside_voice_activity(commits: bool) -> None:
    async def body(world: World) -> None:
        met = meet(world, dialect())
        met.channel.say(update(turn_detection=VAD))
        await speak(met, "xxxx")
        if commits:
            met.channel.say(COMMIT)
        await speak(met, "xxxx......")
        events = got(met)
        check(events)
        assert " ".join(transcripts(events)).split() == expected("xxxxxxxx")
        assert len(transcripts(events)) == 1 + commits
        met.channel.leave()

    serving(body)


def test_a_quiet_client_keeps_its_session() -> None:
    async def body(world: World) -> None:
        met = meet(world, dialect())
        await asyncio.sleep(300)
        await speak(met, "xx")
        met.channel.say(COMMIT)
        await asyncio.sleep(1)
        assert transcripts(got(met)) == ["zero one"]
        await asyncio.sleep(QUIET_S + 200)
        assert met.channel.closed is not None
        assert met.channel.closed[0] == CloseCode.TIMEOUT
        assert not of(got(met), "error")

    serving(body)


def test_a_part_that_could_not_be_decoded_has_failed_and_the_stream_goes_on() -> None:
    items = Items("s")
    items.detecting = True
    events = [
        *items.activity(Activity(0, True, 0)),
        *items.activity(Activity(0, False, 400)),
    ]
    items.gap(Gap(0, 0, 400, "timed_out"))
    events += [*items.segment(segment(1, [], final=True)), *items.arrived(500)]
    events += [*items.activity(Activity(0, True, 1000)), *items.segment(segment(2, ["a"], first=3))]
    names = [name for name, _ in events]
    assert f"{TEXT}.completed" not in names
    (failed,) = (fields for name, fields in events if name == f"{TEXT}.failed")
    assert failed["error"]["code"] == "timed_out"
    assert failed["item_id"] == "item_s_1"
    assert (f"{TEXT}.delta", {"item_id": "item_s_2", "content_index": 0, "delta": "a"}) in events


def test_speech_without_words_is_completed_in_the_end() -> None:
    items = Items("s")
    items.detecting = True
    list(items.activity(Activity(0, True, 0)))
    list(items.activity(Activity(0, False, 400)))
    assert not list(items.arrived(399 + WAIT_MS))
    (completed, done) = items.arrived(400 + WAIT_MS)
    assert completed[0] == f"{TEXT}.completed"
    assert completed[1]["transcript"] == ""
    assert done[0] == "conversation.item.done"
    # Its words come after all, though a turn is told for them only then.
    delta, *_ = items.segment(segment(1, ["late"], final=True))
    assert delta[1]["delta"] == "late"
    assert delta[1]["item_id"] == "item_s_2"


def test_news_of_activity_may_be_missing() -> None:
    """Of the voice activity only the newest is kept for a slow reader."""
    items = Items("s")
    items.detecting = True
    events = [
        *items.activity(Activity(0, False, 500)),
        *items.segment(segment(1, ["a"], final=True)),
        *items.activity(Activity(0, True, 2000)),
        *items.activity(Activity(0, True, 9000)),
        *items.activity(Activity(0, False, 10_000)),
        *items.rest(11_000),
    ]
    names = [name.rpartition(".")[2] for name, _ in events]
    assert names.count("speech_started") == names.count("speech_stopped") == 3
    assert names.count("committed") == names.count("completed") == names.count("done") == 3
    assert [f["transcript"] for name, f in events if name.endswith(".completed")] == ["a", "", ""]


def test_segments_wait_for_their_speakers() -> None:
    items = Items("s")
    list(items.segment(segment(1, ["a", "b"], final=True)))
    list(items.segment(segment(2, ["c"], first=2, final=True)))
    list(items.speaker(Named(0, 2, "Ann")))
    # In order: the first is not known yet.
    assert not list(items.speaker(Speaker(0, 2, 2, 2, False)))
    told = list(items.speaker(Speaker(0, 1, 2, 1, False)))
    assert [(f["text"], f["speaker"], f["start"], f["end"], f["item_id"]) for _, f in told] == [
        ("a b", "A", 0.0, 0.7, "item_s_1"),
        ("c", "Ann", 0.8, 1.1, "item_s_1"),
    ]
    assert not list(items.speaker(Speaker(0, 1, 3, 2, True)))
    list(items.segment(segment(3, ["d"], first=3, final=True)))
    assert not list(items.arrived(1600 + UNNAMED_MS - 1))
    ((_, late),) = items.arrived(1600 + UNNAMED_MS)
    assert (late["text"], late["speaker"]) == ("d", "?")


def test_a_segment_that_is_split_tells_each_word_once() -> None:
    items = Items("s")
    list(items.segment(segment(1, ["a", "b"], final=True)))
    assert not list(items.segment(replace(segment(1, ["a"], final=True), speaker=None)))
    told = list(items.segment(replace(segment(2, ["b"], first=1, final=True), speaker=2)))
    told += items.speaker(Speaker(0, 1, 9, 1, False))
    assert [(f["text"], f["speaker"]) for _, f in told] == [("a", "A"), ("b", "B")]


def test_the_beta_shape_is_answered_in_kind() -> None:
    spoken = dialect(subprotocols=("realtime", BETA))
    (created,) = map(json.loads, map(str, spoken.greet()))
    assert created["type"] == "transcription_session.created"
    session = {
        "input_audio_format": "g711_ulaw",
        "input_audio_transcription": {"model": "any", "language": "en", "prompt": "before"},
        "turn_detection": {"type": "server_vad"},
        "input_audio_noise_reduction": {"type": "near_field"},
    }
    (frame,) = spoken.hear(json.dumps({"type": "transcription_session.update", "session": session}))
    updated = json.loads(str(frame))
    assert updated["type"] == "transcription_session.updated"
    told = updated["session"]
    assert told["input_audio_format"] == "g711_ulaw"
    assert told["turn_detection"]["silence_duration_ms"] == 500
    assert told["input_audio_transcription"]["prompt"] == "before"
    start = next(iter(spoken.hear(append(b"\xff" * HELD))))
    assert isinstance(start, Start)
    assert start.audio == AudioFormat(Encoding.MULAW, 8000)
    assert (start.language, start.context) == ("en", "before")


@pytest.mark.parametrize(
    ("said", "language", "expected"),
    [
        ({"languages": ["en-US", "de"]}, None, ("en", "de")),
        ({"languages": ["cmn"]}, "zh", ("zh",)),
        ({"language": "fr", "languages": ["en", "de"]}, "fr", ("en", "de")),
        ({"languages": ["Klingon", "en"]}, None, ()),
        ({"languages": {"en": 1}}, None, ()),
        ({"languages": [1, [], None] * 100_000}, None, ()),
    ],
)
def test_languages_to_expect_are_passed_on(
    said: dict[str, Any], language: str | None, expected: tuple[str, ...]
) -> None:
    spoken = dialect()
    list(spoken.greet())
    list(spoken.hear(update(format={"type": "audio/pcmu"}, transcription=said)))
    start = next(iter(spoken.hear(append(b"\xff" * HELD))))
    assert isinstance(start, Start)
    assert (start.language, start.languages) == (language, expected)


def test_options_that_cannot_be_had_are_ignored_and_counted() -> None:
    wishes = Wishes()
    ignored = wishes.update(
        {
            "type": "realtime",
            "voice": "loud",
            "include": ["item.input_audio_transcription.logprobs"],
            "audio": {
                "output": {},
                "input": {
                    "noise_reduction": {"type": "far_field", "strength": 1},
                    "transcription": {"model": "m", "keywords": ["Ada", 7], "delay": "minimal", "mood": 1},
                    "turn_detection": {"type": "semantic_vad", "eagerness": "low", "idle_timeout_ms": 9},
                    "echo": True,
                },
            },
        }
    )
    assert set(ignored) == {"session.voice", "input.echo", "transcription.mood"}
    start = wishes.start()
    assert start.hotwords == ("Ada",)
    assert (start.options.max_delay_s, start.options.pause_s) == (1.0, 1.2)
    assert wishes.update({"audio": {"input": {"turn_detection": "server_vad"}}}) == ("turn_detection",)
    sessions: list[object] = [None, [], {"audio": 1}, {"audio": {"input": []}}]
    for session in sessions:
        assert wishes.update(session) == ()
    assert wishes.detecting
    wishes.update({"audio": {"input": {"turn_detection": None}}})
    assert not wishes.detecting


@pytest.mark.parametrize(
    ("silence", "pause_s"),
    [(800, 0.8), (350, LEAST_PAUSE_S), (9000, 3.0), (10**400, 3.0), ("x", 0.5), (None, 0.5)],
)
def test_the_silence_that_ends_a_turn(silence: object, pause_s: float) -> None:
    wishes = Wishes()
    wishes.update({"audio": {"input": {"turn_detection": {**VAD, "silence_duration_ms": silence}}}})
    options = wishes.start().options
    assert options.pause_s == options.activity_pause_s == pause_s


@pytest.mark.parametrize(
    ("format", "field"),
    [
        ({"type": "audio/opus"}, "session.audio.input.format"),
        ("mp3", "session.audio.input.format"),
        ({"type": ["audio/pcm"]}, "session.audio.input.format"),
        ({"type": "audio/pcm", "rate": 96_000}, "session.audio.input.format.rate"),
        ({"type": "audio/pcm", "rate": "fast"}, "session.audio.input.format.rate"),
    ],
)
def test_audio_that_is_not_read_is_refused(format: object, field: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        list(dialect().hear(update(format=format)))
    assert refused.value.field == field


def test_a_format_may_not_change_once_audio_came() -> None:
    spoken = dialect()
    list(spoken.hear(append(b"\0" * HELD)))
    assert not [one for one in spoken.hear(update(format={"type": "audio/pcm"})) if isinstance(one, Ignored)]
    late = [one for one in spoken.hear(update(transcription={"language": "de"})) if isinstance(one, Ignored)]
    assert late == [Ignored(("language after audio",))]
    for fresh in (True, False):
        later = list(spoken.hear(update(transcription={"keywords": ["Ada"]})))
        assert (Hotwords(("Ada",)) in later) is fresh
        assert not [one for one in later if isinstance(one, Ignored) and "hotwords" in str(one)]
    with pytest.raises(ProtocolError, match="open a new connection"):
        list(spoken.hear(update(format={"type": "audio/pcma"})))


def test_large_appends_come_in_pieces() -> None:
    spoken = dialect()
    start, *pieces = spoken.hear(append(bytes(range(250)) * 400))
    assert isinstance(start, Start)
    audio = [piece.data for piece in pieces if isinstance(piece, Audio)]
    assert b"".join(audio) == bytes(range(250)) * 400
    assert max(map(len, audio)) <= PIECE
    with pytest.raises(ProtocolError, match="base64"):
        list(spoken.hear(json.dumps({"type": f"{BUFFER}.append", "audio": "%"})))
    with pytest.raises(ProtocolError, match="base64"):
        list(spoken.hear(json.dumps({"type": f"{BUFFER}.append"})))


def test_what_is_not_known_is_ignored() -> None:
    spoken = dialect()
    assert list(spoken.hear(b"\0")) == [Ignored(("binary frame",))]
    assert list(spoken.hear('{"type": "response.create"}')) == [Ignored(("type response.create",))]
    assert not list(spoken.tick(1.0))
    assert [type(one) for one in spoken.tick(3.0)] == [Start, Alive]
    assert isinstance(next(iter(spoken.hear(COMMIT))), Flush)
    assert not list(spoken.tick(QUIET_S))


@pytest.mark.parametrize(
    ("code", "name", "told"),
    [
        (CloseCode.BAD_REQUEST, "bad_audio", True),
        (CloseCode.LIMIT, "quota", True),
        (CloseCode.LIMIT, "session_too_long", False),
        (CloseCode.RESTART, "restarting", False),
        (CloseCode.OVERLOAD, "overloaded", False),
        (CloseCode.FAULT, "internal", False),
    ],
)
def test_an_error_is_told_only_where_coming_back_is_no_use(code: CloseCode, name: str, told: bool) -> None:
    bye = dialect().close(code, Error(0, name, "why"))
    assert bye.code == code
    assert name in bye.reason
    events = [json.loads(frame) for frame in bye.frames]
    assert [event["error"]["code"] for event in events] == ([name] if told else [])
    assert dialect().close(1000, None) == Bye(1000)


def test_a_server_that_drains_tells_all_there_was() -> None:
    async def body(world: World) -> None:
        met = meet(world, dialect())
        await speak(met, "xx")
        await world.services.sessions.drain(5.0)
        await world.all_done()
        events = got(met)
        check(events)
        assert transcripts(events) == ["zero one"]
        assert met.channel.closed is not None
        assert met.channel.closed[0] == CloseCode.RESTART

    serving(body, FakeScript(delay_s=0.05))
