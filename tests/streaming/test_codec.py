"""The wire, checked with independent libraries."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.wire import messages as m
from streaming.wire.codec import JSON_PROTOCOL, MSGPACK_PROTOCOL, Codec, JsonCodec, MsgpackCodec, choose
from streaming.wire.errors import CloseCode, ProtocolError
from tests.support.packing import pack, unpack

SEGMENT = m.Segment(
    seq=7,
    id=2,
    rev=3,
    first_word=40,
    start_ms=1000,
    end_ms=2500,
    speaker=None,
    text="Grüße 世界",
    words=(m.Word("Grüße", 1000, 1400, 0.5), m.Word("世", 1500, 1600), m.Word("界", 1600, 1700, space=False)),
    partial=" und",
    final=False,
)
RECEIPT = m.Receipt(320, 20, 1, 160, 160, 0, 10, 10, 0, (m.Span(0, 160, "text"), m.Span(160, 320, "silence")))
SERVER: list[tuple[m.ServerMessage, dict[str, Any]]] = [
    (
        SEGMENT,
        {
            "type": "segment",
            "seq": 7,
            "id": 2,
            "rev": 3,
            "first_word": 40,
            "start_ms": 1000,
            "end_ms": 2500,
            "speaker": None,
            "text": "Grüße 世界",
            "words": [
                {"text": "Grüße", "start_ms": 1000, "end_ms": 1400, "confidence": 0.5},
                {"text": "世", "start_ms": 1500, "end_ms": 1600},
                {"text": "界", "start_ms": 1600, "end_ms": 1700, "space": False},
            ],
            "partial": " und",
            "final": False,
        },
    ),
    (m.Ack(3, 16_000, 8_000), {"type": "ack", "seq": 3, "sample": 16_000, "durable": 8_000}),
    (m.Flushed(4, "a", 5), {"type": "flushed", "seq": 4, "id": "a", "sample": 5}),
    (m.Gap(5, 1, 2, "loop"), {"type": "gap", "seq": 5, "start_ms": 1, "end_ms": 2, "cause": "loop"}),
    (m.Error(6, "idle", "why"), {"type": "error", "seq": 6, "code": "idle", "message": "why"}),
]


@pytest.mark.parametrize(("message", "fields"), SERVER)
def test_server_messages_read_by_other_libraries(message: m.ServerMessage, fields: dict[str, Any]) -> None:
    assert json.loads(JsonCodec().encode(message)) == fields
    assert unpack(MsgpackCodec().encode(message)) == fields


@pytest.mark.parametrize("codec", [JsonCodec(), MsgpackCodec()])
def test_what_is_encoded_is_decoded(codec: Codec) -> None:
    ready = m.Ready(1, "s", 1, "e", "m", m.AudioFormat(), m.Limits(1, 2, 3, 4), 3000, 600)
    for message in (SEGMENT, ready, m.Ended(9, RECEIPT), *(row[0] for row in SERVER)):
        assert codec.decode_server(codec.encode(message)) == message
    start = m.Start(
        audio=m.AudioFormat(m.Encoding.MULAW, 8000), language="de", languages=("de", "en"), hotwords=("Seam",)
    )
    people = m.Start(audio=m.AudioFormat(channels=2), tracks=(m.Track("Ann"), m.Track("Ann")))
    nameless = m.Start(tracks=(m.Track(),), options=m.Options(speakers=True))
    for sent in (start, people, nameless, m.Start(), m.Audio(b"\0\1"), m.Flush("x"), m.End()):
        assert codec.decode(codec.encode_client(sent)) == sent


def test_client_messages_of_other_libraries() -> None:
    start = {"type": "start", "audio": {"encoding": "alaw", "sample_rate": 8000, "channels": 2}}
    for got in (JsonCodec().decode(json.dumps(start)), MsgpackCodec().decode(pack(start))):
        assert got == m.Start(audio=m.AudioFormat(m.Encoding.ALAW, 8000, 2))
    assert JsonCodec().decode(b"\0\1") == m.Audio(b"\0\1")
    in_text = json.dumps({"type": "audio", "data": base64.b64encode(b"\0\1").decode()})
    assert JsonCodec().decode(in_text) == m.Audio(b"\0\1")
    assert MsgpackCodec().decode(pack({"type": "audio", "data": b"\0\1"})) == m.Audio(b"\0\1")


def test_a_start_left_empty_has_sensible_defaults() -> None:
    start = JsonCodec().decode('{"type":"start"}')
    assert start == m.Start(
        version=1,
        audio=m.AudioFormat(m.Encoding.PCM_S16LE, 16_000, 1),
        language=None,
        context="",
        hotwords=(),
    )


BAD: list[tuple[dict[str, Any], str, str, str]] = [
    ({"type": "start", "audio": {"encoding": "opus"}}, "unsupported_encoding", "audio.encoding", "pcm_s16le"),
    (
        {"type": "start", "audio": {"sample_rate": 96000}},
        "unsupported_sample_rate",
        "audio.sample_rate",
        "48000",
    ),
    (
        {"type": "start", "audio": {"sample_rate": "16k"}},
        "unsupported_sample_rate",
        "audio.sample_rate",
        "8000",
    ),
    ({"type": "start", "audio": {"channels": 0}}, "unsupported_channels", "audio.channels", "1 to 8"),
    ({"type": "start", "audio": {"channels": 9}}, "unsupported_channels", "audio.channels", "1 to 8"),
    ({"type": "start", "audio": {"rate": 1}}, "unknown_field", "audio.rate", "sample_rate"),
    ({"type": "start", "langauge": "en"}, "unknown_field", "langauge", "language"),
    (
        {"type": "start", "audio": {"channels": 3}, "tracks": [{"name": "Ann"}, {}]},
        "bad_field",
        "tracks",
        "audio.channels is 3",
    ),
    ({"type": "start", "tracks": [{}, {}]}, "bad_field", "tracks", "one {} or {name"),
    ({"type": "start", "tracks": [{}] * 9}, "bad_field", "tracks", "8 at most"),
    ({"type": "start", "tracks": [{"name": ""}]}, "bad_field", "tracks[0].name", "1 to 64"),
    (
        {"type": "start", "tracks": [{"name": "a\nb"}]},
        "bad_field",
        "tracks[0].name",
        "one line of plain text",
    ),
    ({"type": "name", "speaker": 1, "name": "\x1b[2J"}, "bad_field", "name", "one line of plain text"),
    ({"type": "name", "speaker": 1, "name": "nnA \u202eBob"}, "bad_field", "name", "one line of plain text"),
    ({"type": "presence", "id": "x", "name": "a\u2028b"}, "bad_field", "name", "one line of plain text"),
    ({"type": "start", "tracks": [{"names": "A"}]}, "unknown_field", "tracks[0].names", "name"),
    ({"type": "start", "tracks": [{}], "voices": ["Ann"]}, "bad_field", "voices", "name the tracks"),
    ({"type": "start", "voices": [""]}, "bad_field", "voices[0]", "64 names"),
    ({"type": "start", "options": {"delay": 1}}, "unknown_field", "options.delay", "max_delay_s"),
    ({"type": "start", "options": {"max_delay_s": 0}}, "bad_field", "options.max_delay_s", "0.7"),
    ({"type": "start", "options": {"pause_s": 99}}, "bad_field", "options.pause_s", "0.2"),
    ({"type": "start", "version": 2}, "unsupported_version", "version", "version 1"),
    ({"type": "start", "version": 3, "new": 1}, "unsupported_version", "version", "version 1"),
    ({"type": "start", "version": "1"}, "unsupported_version", "version", "version 1"),
    ({"type": "start", "language": "English"}, "bad_field", "language", "ISO 639"),
    ({"type": "start", "language": "en\n"}, "bad_field", "language", "ISO 639"),
    ({"type": "start", "languages": ["en", "German"]}, "bad_field", "languages[1]", "ISO 639"),
    ({"type": "start", "languages": 17 * ["en"]}, "bad_field", "languages", "at most 16"),
    ({"type": "start", "hotwords": [""]}, "bad_field", "hotwords[0]", "1 to 64"),
    ({"type": "start", "context": "x" * 4001}, "bad_field", "context", "4000"),
    ({"type": "flush"}, "missing_field", "id", "text"),
    ({"type": "flush", "id": ""}, "bad_field", "id", "128"),
    ({"type": "flush", "id": "i" * 129}, "bad_field", "id", "128"),
    ({"type": "begin"}, "unknown_type", "type", "start"),
    ({"hello": 1}, "missing_field", "type", "start"),
]


@pytest.mark.parametrize(("message", "code", "field", "remedy"), BAD)
def test_bad_messages_name_field_and_remedy(
    message: dict[str, Any], code: str, field: str, remedy: str
) -> None:
    for codec, data in (
        (JsonCodec(), json.dumps(message)),
        (MsgpackCodec(), pack(message)),
    ):
        with pytest.raises(ProtocolError) as caught:
            codec.decode(data)
        error = caught.value
        assert (error.code, error.field, error.close) == (code, field, CloseCode.BAD_REQUEST)
        assert field in error.message
        assert remedy in error.message


@pytest.mark.parametrize("text", ["", "hello", "[]", "null", '{"type":', '"start"', "{}x", "\x00"])
def test_garbage_json_is_malformed(text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        JsonCodec().decode(text)
    assert caught.value.code in {"malformed", "missing_field"}


STARTED = b"\x82\xa4type\xa5start"
DEEP_JSON = "[" * 3000 + "]" * 3000
DEEP: list[tuple[Codec, str | bytes]] = [
    (JsonCodec(), f'{{"type":"start","x":{DEEP_JSON}}}'),
    (JsonCodec(), f'{{"x":{DEEP_JSON},"type":"start"}}'),
    (JsonCodec(), f'{{"type":"start","version":{DEEP_JSON}}}'),
    (JsonCodec(), DEEP_JSON),
    (MsgpackCodec(), b"\x91" * 200_000),
    (MsgpackCodec(), STARTED + b"\xa1x" + b"\x91" * 200_000),
    (MsgpackCodec(), STARTED + b"\xa7version" + b"\x91" * 200_000),
]


@pytest.mark.parametrize(("codec", "data"), DEEP)
def test_deep_nesting_is_the_clients_fault(codec: Codec, data: str | bytes) -> None:
    for decode in (codec.decode, codec.decode_server):
        with pytest.raises(ProtocolError) as caught:
            decode(data)
        assert caught.value.close == CloseCode.BAD_REQUEST
    with pytest.raises(ProtocolError) as caught:
        codec.decode(data)
    assert caught.value.code in {"malformed", "bad_field", "unsupported_version"}


LONG = "x\nERROR forged\x1b[31m" + "y" * 500_000
ECHOES: list[dict[str, Any]] = [
    {"type": "start", LONG: 1},
    {"type": "start", "audio": {LONG: 1}},
    {"type": "start", "audio": {"encoding": LONG}},
    {"type": "start", "version": LONG},
    {"type": "start", "version": [LONG]},
    {"type": LONG},
    {LONG: LONG},
]


@pytest.mark.parametrize("message", ECHOES)
def test_what_a_client_wrote_is_echoed_in_short_and_on_one_line(message: dict[str, Any]) -> None:
    for codec, data in ((JsonCodec(), json.dumps(message)), (MsgpackCodec(), pack(message))):
        with pytest.raises(ProtocolError) as caught:
            codec.decode(data)
        for text in (caught.value.message, caught.value.field or ""):
            assert len(text) < 400
            assert text.isprintable()


def test_text_under_msgpack_is_refused() -> None:
    with pytest.raises(ProtocolError, match="binary frame") as caught:
        MsgpackCodec().decode('{"type":"start"}')
    assert caught.value.code == "text_frame"


@given(st.binary(max_size=64))
def test_any_bytes_give_a_message_or_a_protocol_error(data: bytes) -> None:
    for decode in (MsgpackCodec().decode, MsgpackCodec().decode_server):
        with suppress(ProtocolError):
            decode(data)


@given(st.text(max_size=64))
def test_any_text_gives_a_message_or_a_protocol_error(text: str) -> None:
    for decode in (JsonCodec().decode, JsonCodec().decode_server, MsgpackCodec().decode):
        with suppress(ProtocolError):
            decode(text)


def test_broken_text_inside_msgpack() -> None:
    broken = b"\x81\xa4type\xa1\xff"
    for decode in (MsgpackCodec().decode, MsgpackCodec().decode_server):
        with pytest.raises(ProtocolError) as caught:
            decode(broken)
        assert caught.value.code == "malformed"
    with pytest.raises(ProtocolError):
        JsonCodec().decode_server("{")


def test_the_subprotocol_chooses() -> None:
    def chosen(*offered: str) -> str | None:
        codec = choose(offered)
        return codec.name if codec else None

    assert chosen() == JSON_PROTOCOL
    assert chosen("x", MSGPACK_PROTOCOL, JSON_PROTOCOL) == MSGPACK_PROTOCOL
    assert chosen("token", "secret") is None


def test_messages_are_frozen() -> None:
    with pytest.raises(AttributeError):
        SEGMENT.rev = 4  # type: ignore[misc]
    assert msgspec.structs.replace(SEGMENT, rev=4).rev == 4


def _wrong(shape: type[msgspec.Struct], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each field of a message by its path, with what cannot stand there."""
    for field in msgspec.structs.fields(shape):
        nested = isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
        yield f"{path}{field.name}", {field.name: 5 if nested else {}}
        if nested:
            yield from ((at, {field.name: inner}) for at, inner in _wrong(field.type, f"{field.name}."))


@pytest.mark.parametrize(
    ("tag", "path", "wrong"),
    [
        (shape.__struct_config__.tag, path, wrong)
        for shape in get_args(m.ClientMessage)
        for path, wrong in _wrong(shape)
    ],
)
def test_every_field_that_is_wrong_is_named_with_a_remedy(tag: str, path: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError) as caught:
        JsonCodec().decode(json.dumps({"type": tag, **wrong}))
    assert caught.value.field == path
    assert str(caught.value).startswith(f"{path}: ")
    assert "see the protocol" not in str(caught.value)
