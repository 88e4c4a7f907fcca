"""Meeting bots and telephone calls: frames as their documents show them, and as bad lines deliver them."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from streaming.dialects import acs, attendee, recall, twilio
from streaming.dialects.bots import MALFORMED, Bot
from streaming.dialects.dialect import Dialect, Handshake, Heard, Ignored, Way
from streaming.dialects.query import Query
from streaming.wire.codec import MsgpackCodec
from streaming.wire.errors import ProtocolError
from streaming.wire.messages import Alive, Audio, End, Flush, Name, Participant, Presence, Start, Track
from tests.support.foreign import meet
from tests.support.sound import expected, s16, speech
from tests.support.world import World, serving

WAYS = (twilio.WAY, recall.WAY, attendee.WAY, acs.WAY)


def mulaw(audio: bytes) -> bytes:
    """Of s16le; the nearest code, by our own table."""
    table = np.array([_plain(code) for code in range(256)])
    order = np.argsort(table, kind="stable")
    values = np.frombuffer(audio, "<i2") / 32768
    return bytes(order[np.searchsorted(table[order], values).clip(0, 255)].astype(np.uint8))


def _plain(code: int) -> float:
    code = ~code & 0xFF
    size = ((((code & 15) << 3) + 0x84) << (code >> 4 & 7)) - 0x84
    return (-size if code & 0x80 else size) / 32768


def opened(way: Way, query: str = "") -> Dialect:
    return way.open(Handshake("id", "", Query.parse(query)))


def heard(dialect: Dialect, *frames: dict[str, Any]) -> list[Heard]:
    return [one for frame in frames for one in dialect.hear(json.dumps(frame))]


def text(data: bytes) -> str:
    return b64encode(data).decode()


def start(*tracks: str, **parameters: str) -> dict[str, Any]:
    return {
        "event": "start",
        "sequenceNumber": "1",
        "streamSid": "MZ1",
        "start": {
            "accountSid": "AC1",
            "streamSid": "MZ1",
            "callSid": "CA1",
            "tracks": list(tracks),
            "customParameters": parameters,
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
        },
    }


def media(track: str, chunk: int, payload: bytes) -> dict[str, Any]:
    at = {"track": track, "chunk": str(chunk + 1), "timestamp": str(20 * chunk), "payload": text(payload)}
    return {"event": "media", "sequenceNumber": str(chunk + 2), "streamSid": "MZ1", "media": at}


CONNECTED = {"event": "connected", "protocol": "Call", "version": "1.0.0"}
STOP = {"event": "stop", "sequenceNumber": "9", "streamSid": "MZ1", "stop": {"callSid": "CA1"}}


def person(id: int, name: str | None) -> dict[str, Any]:
    return {"id": id, "name": name, "is_host": False, "platform": "zoom", "extra_data": {}, "email": None}


def recalled(event: str, at_s: float = 0.0, who: dict[str, Any] | None = None, data: bytes = b"") -> Any:
    inner: dict[str, Any] = {"timestamp": {"relative": at_s, "absolute": "2026-01-01T00:00:00Z"}}
    if event.startswith("audio"):
        inner["buffer"] = text(data)
    if who is not None:
        inner["participant"] = who
    about = {"data": inner, "bot": {"id": "bot-1", "metadata": {}}, "recording": {"id": "r", "metadata": {}}}
    return {"event": event, "data": about}


def attended(data: bytes, at_ms: int, who: str | None = None, rate: int = 16_000) -> dict[str, Any]:
    inner: dict[str, Any] = {"chunk": text(data), "sample_rate": rate, "timestamp_ms": at_ms}
    if who is None:
        return {"trigger": "realtime_audio.mixed", "bot_id": "bot_1", "data": inner}
    inner["participant_uuid"] = who
    return {"trigger": "realtime_audio.per_participant", "bot_id": "bot_1", "data": inner}


def azure(data: bytes, second: float, who: str | None) -> dict[str, Any]:
    at = f"2026-01-01T00:00:{second:010.7f}Z"
    inner = {"timestamp": at, "participantRawID": who, "data": text(data), "silent": False}
    return {"kind": "AudioData", "audioData": inner}


METADATA = {
    "kind": "AudioMetadata",
    "audioMetadata": {
        "subscriptionId": "s1",
        "encoding": "PCM",
        "sampleRate": 24000,
        "channels": 1,
        "length": 960,
    },
}


def starts(found: Iterable[Heard]) -> Start:
    (one,) = (item for item in found if isinstance(item, Start))
    return one


def test_a_call_is_two_tracks_with_names_and_brings_its_key() -> None:
    call = opened(twilio.WAY)
    assert heard(call, CONNECTED) == []
    found = heard(call, start("inbound", "outbound", token="k", inbound="Ann", language="en-US"))
    assert found[1:] == [Presence("inbound", True, "Ann", 1), Presence("outbound", True, "Callee", 2)]
    begun = starts(found)
    assert begun.tracks == (Track("Ann"), Track("Callee"))
    assert (begun.token, begun.label, begun.language) == ("k", "CA1", "en")
    assert heard(call, media("inbound", 0, b"\x01\x02")) == []
    assert heard(call, media("outbound", 0, b"\x03\x04")) == [Audio(b"\x01\x03\x02\x04")]
    assert heard(call, {"event": "dtmf"}, {"event": "mark"}) == []
    rest = heard(call, media("inbound", 2, b"\x05\x06"), STOP)
    assert rest[1:] == [Presence("inbound", False, "Ann", 1), Presence("outbound", False, "Callee", 2), End()]
    assert rest[0] == Audio(b"\xff" * (2 * 318) + b"\x05\xff\x06\xff")
    assert list(call.gone()) == []


def test_a_call_over_the_line_ends_in_words_of_two_people() -> None:
    async def body(world: World) -> None:
        met = meet(world, opened(twilio.WAY))
        both = {"inbound": speech("xx......", 8000), "outbound": speech("....xx..", 8000)}
        met.channel.say(json.dumps(CONNECTED), json.dumps(start("inbound", "outbound")))
        coded = {track: mulaw(s16(audio)) for track, audio in both.items()}
        for chunk in range(len(both["inbound"]) // 160):
            for track, data in coded.items():
                piece = data[160 * chunk : 160 * (chunk + 1)]
                met.channel.say(json.dumps(media(track, chunk, piece)))
            await asyncio.sleep(0.02)
        met.channel.say(json.dumps(STOP))
        await world.all_done()
        assert met.channel.sent == []
        assert met.channel.closed == (1000, "")
        entry = world.services.sessions.find(met.id)
        assert entry is not None
        log = entry.log
        said = {s.track: [w.text for w in s.words] for s in log.segments() if s.words}
        assert said == {0: expected("xx......"), 1: expected("....xx..")}
        assert log.names == {1: "Caller", 2: "Callee"}
        assert [replace(one, seq=0) for one in log.participants.values()] == [
            Participant(0, "inbound", False, 4000, "Caller", 1),
            Participant(0, "outbound", False, 4000, "Callee", 2),
        ]
        assert log.receipt is not None
        assert (log.receipt.samples, log.receipt.gap_samples) == (8 * 8000, 0)

    serving(body)


def test_recalls_participants_are_tracks_with_names() -> None:
    bot = opened(recall.WAY, "language=en")
    ann, bob = person(100, "Ann"), person(200, None)
    assert heard(bot, recalled("participant_events.join", who=ann)) == []
    found = heard(bot, recalled("audio_separate_raw.data", 5.0, ann, b"\1\0" * 320))
    assert found == [
        Start(audio=starts(found).audio, language="en", tracks=(Track(),) * 8, label="bot-1"),
        Presence("100", True, "Ann", 1),
        Name(1, "Ann"),
    ]
    first = heard(bot, recalled("audio_separate_raw.data", 5.0, bob, b"\2\0" * 320))
    assert first == [Presence("200", True, "", 2)]
    named = heard(bot, recalled("participant_events.update", who=person(200, "Bob")))
    assert named == [Presence("200", True, "Bob", 2), Name(2, "Bob")]
    assert heard(bot, recalled("participant_events.leave", who=bob)) == [Presence("200", False, "Bob", 2)]
    back = heard(bot, recalled("participant_events.join", who=person(300, "Bob")))
    assert back == [Presence("300", True, "Bob")]
    # The same person under another id.
    rest = heard(bot, recalled("audio_separate_raw.data", 5.02, person(300, "Bob"), b"\3\0" * 320))
    assert rest == [Presence("300", True, "Bob", 2)]
    (audio,) = bot.gone()
    assert isinstance(audio, Audio)
    frames = np.frombuffer(audio.data, "<i2").reshape(-1, 8)
    assert frames[0].tolist() == [1, 2, 0, 0, 0, 0, 0, 0]
    assert frames[-1].tolist() == [0, 3, 0, 0, 0, 0, 0, 0]
    assert len(frames) == 640


def test_whoever_leaves_and_comes_back_is_there_again_and_late_sound_brings_nobody_back() -> None:
    bot = opened(recall.WAY)
    ann = person(100, "Ann")
    heard(bot, recalled("audio_separate_raw.data", 0.0, ann, b"\1\0" * 320))
    assert heard(bot, recalled("participant_events.leave", who=ann)) == [Presence("100", False, "Ann", 1)]
    late = heard(bot, recalled("audio_separate_raw.data", 0.02, ann, b"\1\0" * 320))
    assert not any(isinstance(one, Presence) for one in late)
    assert heard(bot, recalled("participant_events.join", who=ann)) == [Presence("100", True, "Ann", 1)]
    assert heard(bot, recalled("participant_events.join", who=ann)) == []


def test_who_only_listens_is_there_too_beside_a_mix_and_before_any_sound() -> None:
    bot = opened(recall.WAY)
    assert heard(bot, recalled("participant_events.join", who=person(1, "Ann"))) == []
    assert heard(bot, recalled("audio_mixed_raw.data", 0.0, data=b"\1\0" * 320))[1:] == [
        Presence("1", True, "Ann"),
        Audio(b"\1\0" * 320),
    ]
    assert heard(bot, recalled("participant_events.leave", who=person(1, "Ann"))) == [
        Presence("1", False, "Ann")
    ]
    quiet = opened(recall.WAY)
    heard(quiet, recalled("participant_events.join", who=person(1, "Ann")))
    assert list(quiet.tick(5.0))[1:] == [Presence("1", True, "Ann")]


def test_where_nobody_tells_of_coming_the_first_sound_does() -> None:
    bot, call = opened(attendee.WAY), opened(acs.WAY)
    heard(bot, attended(b"\1\0" * 320, 0, "u1"))
    assert Presence("u2", True, "", 2) in heard(bot, attended(b"\1\0" * 320, 0, "u2"))
    heard(call, METADATA, azure(b"\1\0" * 480, 1.0, "8:acs:a"))
    assert Presence("4:+1", True, "", 2) in heard(call, azure(b"\2\0" * 480, 1.0, "4:+1"))


def test_without_an_id_nobody_is_anybody() -> None:
    assert heard(opened(recall.WAY), recalled("participant_events.join", who={"id": ""})) == [MALFORMED]
    assert heard(opened(attendee.WAY), attended(b"\1\0", 0, "")) == [MALFORMED]


def test_the_ninth_shares_the_eighths_track_and_its_name_says_so() -> None:
    bot = opened(recall.WAY)
    found = heard(
        bot,
        *(
            recalled("audio_separate_raw.data", 0.0, person(n, f"P{n}"), bytes([n, 0]) * 320)
            for n in range(1, 10)
        ),
    )
    assert [one for one in found if isinstance(one, Name)][-2:] == [Name(8, "P8"), Name(8, "P8 / P9")]
    (audio,) = (one for one in [*found, *bot.gone()] if isinstance(one, Audio))
    assert isinstance(audio, Audio)
    assert np.frombuffer(audio.data, "<i2").reshape(-1, 8)[7].tolist() == [1, 2, 3, 4, 5, 6, 7, 17]


def test_a_name_is_one_line_that_shows() -> None:
    call, bot = opened(twilio.WAY), opened(recall.WAY)
    begun = starts(heard(call, CONNECTED, start("inbound", "outbound", inbound=" An\nn\x1b", outbound="\0")))
    assert begun.tracks == (Track("An n"), Track("Callee"))
    found = heard(bot, recalled("audio_separate_raw.data", 5.0, person(1, "\u202eAnn\r\n"), b"\1\0" * 320))
    assert found[1:] == [Presence("1", True, "Ann", 1), Name(1, "Ann")]


def test_people_without_end_are_counted() -> None:
    bot = opened(attendee.WAY)
    found = heard(bot, *(attended(b"\1\0" * 320, 0, f"u{n}") for n in range(70)))
    assert found.count(Ignored(("participant",))) == 6


def test_a_mix_is_one_stream_whose_voices_are_told_apart() -> None:
    for bot, frame in (
        (opened(recall.WAY), recalled("audio_mixed_raw.data", 3.0, data=b"\1\0" * 320)),
        (opened(attendee.WAY, "label=daily"), attended(b"\1\0" * 320, 1_703_123_456_789)),
        (opened(acs.WAY), azure(b"\1\0" * 320, 1.0, None)),
    ):
        found = heard(bot, frame)
        begun = starts(found)
        assert (begun.tracks, begun.audio.channels, begun.audio.sample_rate) == ((), 1, 16_000)
        assert found[1:] == [Audio(b"\1\0" * 320)]
    assert starts(heard(opened(attendee.WAY, "label=daily"), attended(b"\0\0", 0))).label == "daily"


def test_both_at_once_would_be_the_same_words_twice() -> None:
    bot = opened(attendee.WAY)
    heard(bot, attended(b"\1\0", 0, "u"))
    assert Ignored(("mixed audio",)) in heard(bot, attended(b"\1\0", 0))
    bot = opened(attendee.WAY)
    heard(bot, attended(b"\1\0", 0))
    assert Ignored(("participant's audio",)) in heard(bot, attended(b"\1\0", 0, "u"))


def test_azures_calls() -> None:
    call = opened(acs.WAY, "tracks=2")
    assert heard(call, METADATA) == []
    begun = starts(found := heard(call, azure(b"\1\0" * 480, 58.98, "8:acs:a")))
    assert (begun.audio.sample_rate, begun.audio.channels, begun.label) == (24_000, 2, "s1")
    found += heard(call, azure(b"\2\0" * 480, 58.98, "4:+1"), azure(b"\3\0" * 480, 59.0, "8:acs:a"))
    (audio,) = (one for one in [*found, *call.gone()] if isinstance(one, Audio))
    assert np.frombuffer(audio.data, "<i2").reshape(-1, 2).tolist() == [[1, 2]] * 480 + [[3, 0]] * 480


def test_a_bot_that_is_silent_is_waited_for() -> None:
    bot = opened(attendee.WAY, "sample_rate=8000")
    assert list(bot.tick(4.0)) == []
    begun = starts(bot.tick(5.0))
    assert (len(begun.tracks), begun.audio.sample_rate) == (8, 8000)
    assert list(bot.tick(6.0)) == [Alive()]
    # Whichever comes first is taken.
    assert not any(isinstance(one, Ignored) for one in heard(bot, attended(b"\1\0" * 160, 0, rate=8000)))
    assert [type(one) for one in bot.tick(1.0)] == [Alive, Audio]
    assert list(bot.tick(2.0)) == [Alive(), Flush("1")]
    assert list(bot.tick(3.0)) == [Alive()]


def test_a_rate_that_changes_is_told() -> None:
    bot = opened(attendee.WAY)
    heard(bot, attended(b"\1\0", 0, "u"))
    with pytest.raises(ProtocolError, match=r"sample_rate: 8000 came after 16000"):
        heard(bot, attended(b"\1\0", 0, "u", rate=8000))


@pytest.mark.parametrize("rate", [0, 4000, 96_000, 10**40, "x", None])
def test_a_rate_that_cannot_be_is_told(rate: object) -> None:
    frame = attended(b"\1\0", 0)
    frame["data"]["sample_rate"] = rate
    with pytest.raises(ProtocolError, match="sample_rate: "):
        heard(opened(attendee.WAY), frame)


@pytest.mark.parametrize("query", ["tracks=9", "tracks=x", "sample_rate=1"])
def test_an_address_that_cannot_be_is_refused(query: str) -> None:
    with pytest.raises(ProtocolError):
        opened(recall.WAY, query)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_what_cannot_be_read_is_ignored(way: Way) -> None:
    bot = opened(way)
    assert list(bot.hear("{")) == [MALFORMED]
    assert list(bot.hear(b"\xff")) == [MALFORMED]
    assert all(isinstance(one, Ignored) for one in heard(bot, {}, {"event": "media"}, {"kind": "x"}))
    cut = [{"event": "audio_mixed_raw.data", "data": {"data": {"buffer": "AA"}}}]
    cut += [{"trigger": "realtime_audio.mixed", "data": {"chunk": "A"}}, azure(b"", 0, None)]
    assert not any(isinstance(one, Audio) for one in heard(bot, *cut))


Scraps = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def frames(draw: st.DrawFn) -> dict[str, Any]:
    """Frames with one thing wrong somewhere."""
    data = draw(st.binary(max_size=700))
    whole: dict[str, Any] = draw(
        st.sampled_from(
            [
                start("inbound", "outbound"),
                media(draw(st.sampled_from(["inbound", "outbound", "x"])), draw(st.integers(0, 99)), data),
                recalled("audio_separate_raw.data", draw(st.floats(0, 9)), person(1, "A"), data),
                recalled("participant_events.join", who=person(draw(st.integers(0, 99)), "B")),
                attended(data, draw(st.integers(0, 10**13)), draw(st.sampled_from(["u", "v", None]))),
                azure(data, draw(st.floats(0, 59)), draw(st.sampled_from(["p", None]))),
                METADATA,
            ]
        )
    )
    if draw(st.booleans()):
        path: list[str] = []
        inner: Any = whole
        while isinstance(inner, dict) and inner and (not path or draw(st.booleans())):
            path.append(draw(st.sampled_from(sorted(inner))))
            inner = inner[path[-1]]
        whole = json.loads(json.dumps(whole))
        at = whole
        for name in path[:-1]:
            at = at[name]
        at[path[-1]] = draw(Scraps)
    return whole


@given(st.sampled_from(WAYS), st.lists(frames() | st.dictionaries(st.text(), Scraps), max_size=12))
def test_whatever_comes_nothing_breaks(way: Way, came: list[dict[str, Any]]) -> None:
    bot, codec = opened(way), MsgpackCodec()
    for frame in came:
        try:
            for one in [*bot.hear(json.dumps(frame)), *bot.tick(3.0)]:
                if not isinstance(one, Ignored | str):
                    codec.encode_client(one)  # type: ignore[arg-type]
        except ProtocolError:
            return
    list(bot.gone())


def test_who_leaves_without_a_word_loses_nothing() -> None:
    async def body(world: World) -> None:
        bot = opened(recall.WAY)
        assert isinstance(bot, Bot)
        met = meet(world, bot)
        audio = s16(speech("..xx.x"))
        for at in range(0, len(audio), 640):
            frame = recalled("audio_separate_raw.data", at / 32_000, person(1, "Ann"), audio[at : at + 640])
            met.channel.say(json.dumps(frame))
            await asyncio.sleep(0.02)
        met.channel.leave()
        await world.all_done()
        entry = world.services.sessions.find(met.id)
        assert entry is not None
        assert entry.log.receipt is not None
        assert entry.log.receipt.samples == 48_000
        assert [w.text for s in entry.log.segments() for w in s.words] == expected("..xx.x")
        assert entry.log.names == {1: "Ann"}

    serving(body)
