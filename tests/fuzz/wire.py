"""Messages: both codecs, both directions; packed segments; small bodies of requests; signatures."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec
from msgspec import UNSET

from streaming.access import naming
from streaming.denial import Refusal
from streaming.kept import packed
from streaming.sockets.greeting import decoded
from streaming.web import minting
from streaming.wire.codec import Codec, JsonCodec, MsgpackCodec
from streaming.wire.errors import ProtocolError
from streaming.wire.messages import (
    Ack,
    Audio,
    AudioFormat,
    ClientMessage,
    Encoding,
    End,
    Ended,
    Error,
    Flush,
    Flushed,
    Gap,
    Hotwords,
    Limits,
    Named,
    Options,
    Participant,
    Presence,
    Read,
    Ready,
    Receipt,
    Resume,
    Segment,
    ServerMessage,
    Span,
    Speaker,
    Start,
    Track,
    Word,
)
from streaming.wire.signature import sign, verify

from .runner import Target

SAID: tuple[ClientMessage, ...] = (
    Start(),
    Start(
        audio=AudioFormat(Encoding.PCM_F32LE, 48_000, 2),
        language="de",
        languages=("de", "en"),
        context="Über uns",
        hotwords=("Zoë", "会議"),
        tracks=(Track("Ann"), Track()),
        options=Options(1.5, 0.4, speakers=False),
        token="t" * 43,
    ),
    Start(voices=("Ann", "Bob")),
    Audio(bytes(range(64))),
    Flush("one"),
    End(),
    Hotwords(("Zoë",)),
    Presence("p1", False, "Bob", 2),
    Resume("s" * 22, "t" * 43, 7, 16_000),
    Read("t" * 64, 3),
)
SEGMENT = Segment(
    5,
    1,
    2,
    0,
    10,
    2010,
    1,
    "Grüße 会議",
    (Word("Grüße", 10, 400, 0.5), Word("会議", 900, 1500, UNSET, False)),
    " more",
    False,
    language="de",
    track=1,
    name="Ann",
)
TOLD: tuple[ServerMessage, ...] = (
    Ready(
        1, "s" * 22, 1, "fake", "slots", AudioFormat(), Limits(1 << 20, 30_000, 1 << 20, 120_000), 3000, 600
    ),
    SEGMENT,
    Speaker(6, 1, 3, 2, False, score=0.7),
    Named(7, 2, "Bob"),
    Participant(7, "p1", True, 20, "Bob", 2),
    Ack(7, 16_000, 8_000),
    Flushed(8, "one", 16_000),
    Gap(9, 0, 20, "lost"),
    Ended(10, Receipt(320, 20, 1, 320, 0, 0, 20, 0, 0, (Span(0, 320, "text"),))),
    Error(11, "idle", "nothing came", field="audio", retry_after_ms=5),
)
SECRET, BODY, NOW = "s" * 32, b'{"type":"session.ended"}', 1_700_000_000
SIGNATURE = sign(SECRET, BODY, NOW)


def _bytes(frame: str | bytes) -> bytes:
    return frame.encode() if isinstance(frame, str) else frame


def _said(codec: Codec, text: bool) -> Callable[[bytes, Random], object]:
    """What a client sends; what was understood reads back as the same."""

    def run(case: bytes, choices: Random) -> object:
        data: str | bytes = case.decode("utf-8", "replace") if text else case
        message = decoded(data, codec, 1 << 20)
        try:
            again = codec.decode(codec.encode_client(message))
        except ProtocolError as error:
            raise AssertionError(f"what was taken is refused: {error}") from error
        assert again == message
        return message

    return run


def _told(codec: Codec, text: bool) -> Callable[[bytes, Random], object]:
    """What a server sends."""

    def run(case: bytes, choices: Random) -> object:
        message = codec.decode_server(case.decode("utf-8", "replace") if text else case)
        # Not by `==`: a number may be NaN.
        assert codec.encode(codec.decode_server(codec.encode(message))) == codec.encode(message)
        return message

    return run


def _packed(case: bytes, choices: Random) -> object:
    segment = packed.unpack(case)
    assert packed.unpack(packed.pack(segment)).text == segment.text
    return segment


def _name(case: bytes, choices: Random) -> object:
    name = naming._name(case)
    assert 1 <= len(name) <= naming.MOST_CHARACTERS
    assert name.isprintable()
    return name


def _order(case: bytes, choices: Random) -> object:
    return minting.order_of(case)


def _signature(case: bytes, choices: Random) -> object:
    header = case.decode("latin-1")
    assert verify(SECRET, BODY, header, NOW) == (header == SIGNATURE), "somebody else signed"
    return None


NAMES = (
    b'{"name": "Ann"}',
    '{"name":"会議"}'.encode(),
    b'{"name":"a\\u0007b"}',
    b'{"name":"%s"}' % (b"x" * 65),
)
FIELDS = tuple(
    f'"{name}":'.encode() for message in (*SAID, *TOLD) for name in ("type", *message.__struct_fields__)
)
_json, _msgpack = JsonCodec(), MsgpackCodec()
TARGETS = (
    Target(
        "json",
        [_bytes(_json.encode_client(m)) for m in SAID],
        _said(_json, True),
        (ProtocolError,),
        2,
        FIELDS,
    ),
    Target(
        "msgpack",
        [_bytes(_msgpack.encode_client(m)) for m in SAID],
        _said(_msgpack, False),
        (ProtocolError,),
        2,
    ),
    Target(
        "json server",
        [_bytes(_json.encode(m)) for m in TOLD],
        _told(_json, True),
        (ProtocolError,),
        1,
        FIELDS,
    ),
    Target(
        "msgpack server", [_bytes(_msgpack.encode(m)) for m in TOLD], _told(_msgpack, False), (ProtocolError,)
    ),
    Target("packed", [packed.pack(SEGMENT)], _packed, (msgspec.DecodeError,)),
    Target("name", NAMES, _name, (Refusal,), 0.5),
    Target(
        "token order",
        [b'{"scope":"read","seconds":60,"session":"abc"}'],
        _order,
        (Refusal,),
        0.5,
    ),
    Target("signature", [SIGNATURE.encode()], _signature, (), 0.5),
)
