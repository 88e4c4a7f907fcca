"""Kyutai's and vosk's protocols with real speech. Their own clients come as source only, so what those do is
done here."""

from __future__ import annotations

import asyncio
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from websockets.asyncio.client import connect

from engine.contract import Audio

from .scene import KEY, MARKS, SPEED, Scene, check

msgpack: Any = import_module("msgpack")

pytestmark = MARKS

RATE = 24_000
STEP = 1920
"""Samples of 80 ms."""


def samples(clip: Path) -> Audio:
    """The clip as Kyutai's clients send it: floats at 24 kHz."""
    audio = np.frombuffer(clip.read_bytes(), "<i2").astype(np.float32) / np.float32(32768)
    places = np.arange(len(audio) * 3 // 2) / np.float32(1.5)
    turned: Audio = np.interp(places, np.arange(len(audio)), audio).astype(np.float32)
    return turned


async def test_kyutai(scene: Scene) -> None:
    url = scene.url.replace("http", "ws", 1) + "/api/asr-streaming"
    audio = samples(scene.clip)
    heard: list[str] = []
    async with connect(url, additional_headers={"kyutai-api-key": KEY}, proxy=None) as socket:

        async def send() -> None:
            for at in range(0, len(audio), STEP):
                pcm = audio[at : at + STEP].tolist()
                await socket.send(msgpack.packb({"type": "Audio", "pcm": pcm}, use_single_float=True))
                await asyncio.sleep(STEP / RATE / SPEED)
            await socket.send(msgpack.packb({"type": "Marker", "id": 7}))

        async with asyncio.timeout(240), asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(send())
            kinds = set()
            while (message := msgpack.unpackb(await socket.recv()))["type"] != "Marker":
                kinds.add(message["type"])
                if message["type"] == "Word":
                    heard.append(message["text"])
            assert message["id"] == 7
            await sending
    assert kinds == {"Ready", "Step", "Word", "EndWord"}
    check(scene, " ".join(heard))


async def test_vosk(scene: Scene) -> None:
    url = scene.url.replace("http", "ws", 1) + f"/vosk?token={KEY}"
    data = scene.clip.read_bytes()
    results: list[dict[str, str]] = []
    async with asyncio.timeout(240), connect(url, proxy=None) as socket:
        await socket.send(json.dumps({"config": {"sample_rate": 16_000}}))
        for at in range(0, len(data), 6400):
            await socket.send(data[at : at + 6400])
            results.append(json.loads(await socket.recv()))  # one answer a piece, else both would wait
            await asyncio.sleep(0.2 / SPEED)
        await socket.send('{"eof" : 1}')
        results.append(json.loads(await socket.recv()))
    assert any(one.get("partial") for one in results)
    check(scene, *(one["text"] for one in results if "text" in one))
