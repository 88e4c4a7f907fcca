"""Many participants on one socket: whatever they do beside speaking, words stay with who said them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import numpy as np
import pytest

from clients.captions import Captions
from engine.contract import Audio
from streaming.wire.messages import ServerMessage
from tests.support.channel import MemoryChannel
from tests.support.sound import expected, s16, speech
from tests.support.world import END, World, serving


def start(count: int) -> dict[str, Any]:
    names = [{"name": f"P{number}"} for number in range(1, count + 1)]
    return {"type": "start", "audio": {"channels": count}, "tracks": names}


def seen(channel: MemoryChannel) -> Captions:
    captions = Captions()
    for message in channel.sent:
        captions.receive(msgspec.convert(message, ServerMessage))
    return captions


def said(captions: Captions) -> dict[tuple[int | None, str | None], list[str]]:
    """Words by track and name of who said them."""
    found: dict[tuple[int | None, str | None], list[str]] = {}
    for segment in captions.ordered():
        if segment.words:
            key = segment.track or 0, segment.name or None
            found.setdefault(key, []).extend(word.text for word in segment.words)
    return found


def test_eight_come_speak_and_leave() -> None:
    """Each speaks in a second of their own, comes just before it and leaves after it, under a name that
    changes meanwhile; the first comes back."""
    slots = ["".join("xx" if at == who else ".." for at in range(10)) for who in range(8)]
    slots[0] = slots[0][:-4] + "xx.."
    audio = np.stack([speech(line) for line in slots], axis=1)

    async def body(world: World) -> None:
        channel = world.client(buffer=1000)
        channel.say(start(8))
        for second in range(10):
            who = second % 8 + 1
            channel.say({"type": "presence", "id": f"p{who}", "present": True, "speaker": who})
            channel.say({"type": "name", "speaker": who, "name": f"Person {who}"})
            channel.say(s16(audio[16_000 * second : 16_000 * (second + 1)].ravel()))
            await asyncio.sleep(1)
            channel.say({"type": "presence", "id": f"p{who}", "present": False})
        channel.say(END)
        await world.all_done()
        captions = seen(channel)
        assert captions.faults == []
        assert said(captions) == {
            (who, f"Person {who + 1}"): expected(line) for who, line in enumerate(slots)
        }
        assert [one.present for one in captions.participants.values()] == [False] * 8
        assert captions.receipt is not None
        assert captions.receipt.gap_samples == 0

    serving(body)


def noise(slots: str) -> Audio:
    random = np.random.default_rng(1)
    audio: Audio = speech(slots)
    loud = np.abs(audio) > 0
    return (0.3 * random.normal(size=audio.size) * loud).astype(np.float32)


@pytest.mark.parametrize(("quieter_db", "heard"), [(-14.0, False), (0.0, True)])
def test_speech_that_a_louder_track_carries_too_is_left_out_and_counted(
    quieter_db: float, heard: bool
) -> None:
    """Of two that are equally loud nobody knows which is the echo: both stay."""
    slots = ".xxx..xx."
    loud = noise(slots)
    other = np.float32(10 ** (quieter_db / 20)) * np.roll(loud, 480)
    both = s16(np.stack([np.clip(loud, -1, 1), np.clip(other, -1, 1)], axis=1).ravel())

    async def body(world: World) -> None:
        channel = world.client(buffer=1000)
        channel.say(start(2), both, END)
        await world.all_done()
        words = {track: len(texts) for (track, _), texts in said(seen(channel)).items()}
        assert words == ({0: 5, 1: 5} if heard else {0: 5})
        seconds = world.services.metrics.echo.value()
        assert seconds == 0 if heard else seconds == pytest.approx(2.5, abs=0.2)

    serving(body)
