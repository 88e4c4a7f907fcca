"""Kyutai's protocol, in the exchange of its own client: audio, silence, a marker, more silence until it is
answered."""

from __future__ import annotations

import asyncio
from array import array
from typing import Any

import msgspec
import pytest

from streaming.dialects.dialect import Handshake, Ignored
from streaming.dialects.kyutai import RATE, WAY, Kyutai
from streaming.wire.errors import ProtocolError
from streaming.wire.messages import Ack, Activity, Error
from tests.support.foreign import meet, segment
from tests.support.sound import expected, speech
from tests.support.world import World, serving


def packed(**fields: Any) -> bytes:
    return msgspec.msgpack.encode(fields)


def heard(frames: Any) -> list[Any]:
    return [msgspec.msgpack.decode(frame) for frame in frames]


def test_the_exchange_of_its_own_client() -> None:
    async def body(world: World) -> None:
        met = meet(world, WAY.open(Handshake("id")))
        slots = "xxx....xx.."
        audio = speech(slots, RATE)
        met.channel.say(packed(type="Init"))
        for at in range(0, audio.size, 1920):
            met.channel.say(packed(type="Audio", pcm=audio[at : at + 1920].tolist()))
            await asyncio.sleep(0.08)
        met.channel.say(packed(type="Marker", id=-7))
        for _ in range(25):
            met.channel.say(packed(type="Audio", pcm=[0.0] * 1920))
            await asyncio.sleep(0.08)
        met.channel.leave()
        messages = heard(met.channel.sent)
        kinds = [message["type"] for message in messages]
        assert kinds[0] == "Ready"
        marker = kinds.index("Marker")
        assert messages[marker] == {"type": "Marker", "id": -7}
        words = [message for message in messages[:marker] if message["type"] == "Word"]
        assert [word["text"] for word in words] == expected(slots)
        assert words[0]["start_time"] == 0.05
        ends = [message["stop_time"] for message in messages if message["type"] == "EndWord"]
        assert ends[0] == 0.45
        steps = [message for message in messages if message["type"] == "Step"]
        assert [step["step_idx"] for step in steps] == sorted({step["step_idx"] for step in steps})
        assert {len(step["prs"]) for step in steps} == {4}
        assert {step["prs"][0] > 0.25 for step in steps} == {True, False}

    serving(body)


def test_pauses_are_as_long_as_they_are() -> None:
    dialect = Kyutai()
    list(dialect.say(Activity(1, True, 0)))
    list(dialect.say(Activity(2, False, 1000)))
    (step,) = heard(dialect.say(Ack(2, 16 * 2100)))
    assert step == {"type": "Step", "step_idx": 26, "prs": [1.0, 1.0, 0.0, 0.0], "buffered_pcm": 0}
    assert list(dialect.say(Ack(2, 16 * 2100))) == []


def test_a_word_is_never_told_twice_nor_before_it_is_certain() -> None:
    dialect = Kyutai()
    assert list(dialect.say(segment(1, [], partial="perhaps"))) == []
    assert len(list(dialect.say(segment(1, ["a"], partial=" b")))) == 2
    assert list(dialect.say(segment(1, ["a"], final=True))) == []


def test_what_is_no_message_and_what_is_not_read() -> None:
    dialect = Kyutai()
    assert list(dialect.hear("text")) == [Ignored(("text frame",))]
    assert list(dialect.hear(packed(type="Init"))) == []
    (sound,) = dialect.hear(packed(type="Audio", pcm=[0, 0.5]))
    assert msgspec.structs.asdict(sound)["data"] == array("f", [0, 0.5]).tobytes()  # type: ignore[arg-type]
    for wrong in (b"", b"\xc1", packed(type="Dance"), packed(type="Audio"), packed(type="OggOpus", data=b"")):
        with pytest.raises(ProtocolError):
            list(dialect.hear(wrong))
    bye = dialect.close(1013, Error(1, "overloaded", "no room"))
    assert heard(bye.frames) == [{"type": "Error", "message": "no room"}]
