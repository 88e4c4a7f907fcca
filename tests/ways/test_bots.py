"""What bots and telephones send, with real speech: as right as the same audio over our own protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from clients.aio import Stream, connect
from clients.captions import Captions
from clients.dialing import Direct
from streaming.app import running
from streaming.openai.answer import text_of
from streaming.settings import AdmissionSettings, EngineSettings, JournalSettings, Settings
from streaming.wire.messages import AudioFormat, Encoding, Start
from tests.dialects.test_bots import CONNECTED, METADATA, STOP, attended, azure, media, mulaw, recalled, start
from tests.engine.real import needs_data, needs_weights
from tests.support.server import Running, listening
from tests.support.waiting import until

from .scene import ALLOWED, MODEL, SPEED, clip, rate

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.flaky(reruns=2, reruns_delay=2),  # as in scene.py
    needs_data,
    needs_weights(MODEL),
]

STEP_S = 0.1
PLAIN = AudioFormat(Encoding.PCM_S16LE, 16_000)
TELEPHONE = AudioFormat(Encoding.MULAW, 8_000)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    settings = Settings(
        engine=EngineSettings(kind="local", model=MODEL),
        journal=JournalSettings(on=False, path=str(tmp_path_factory.mktemp("journal"))),
        # Whether there is room on a machine that others use is not what is tried here.
        admission=AdmissionSettings(on=False),
    )
    async with running(settings) as services, listening(services) as server:
        yield server


def pieces(audio: bytes, size: int) -> list[bytes]:
    return [audio[at : at + size] for at in range(0, len(audio), size)]


def recall(audio: bytes) -> Iterator[dict[str, Any]]:
    for number, data in enumerate(pieces(audio, 3200)):
        yield recalled("audio_mixed_raw.data", number * STEP_S, data=data)


def attendee(audio: bytes) -> Iterator[dict[str, Any]]:
    for number, data in enumerate(pieces(audio, 3200)):
        yield attended(data, round(1000 * number * STEP_S))


def communication(audio: bytes) -> Iterator[dict[str, Any]]:
    about: Any = METADATA["audioMetadata"]
    yield {**METADATA, "audioMetadata": {**about, "sampleRate": 16_000, "length": 3200}}
    for number, data in enumerate(pieces(audio, 3200)):
        yield azure(data, number * STEP_S, None)


def call(audio: bytes) -> Iterator[dict[str, Any]]:
    yield CONNECTED
    yield start("inbound")
    for number, data in enumerate(pieces(audio, 800)):
        yield media("inbound", 5 * number, data)
    yield STOP


async def told(house: Running, path: str, frames: Iterator[dict[str, Any]]) -> str:
    """What was heard of a bot's socket."""
    sessions = house.services.sessions
    async with Direct(f"ws://{house.address}{path}", proxy=None) as socket:
        entry = None
        for frame in frames:
            await socket.send(json.dumps(frame))
            await asyncio.sleep(STEP_S / SPEED)
            entry = entry or sessions.newest()
    assert entry is not None
    await until(lambda: entry.log.receipt)
    assert entry.log.receipt is not None
    assert entry.log.receipt.gap_samples == 0
    return text_of(entry.log)


async def natively(house: Running, audio: bytes, format: AudioFormat) -> str:
    captions = Captions()
    step = round(STEP_S * format.sample_rate) * (2 if format is PLAIN else 1)

    async def speak(stream: Stream) -> None:
        for data in pieces(audio, step):
            await stream.send(data)
            await asyncio.sleep(STEP_S / SPEED)
        await stream.end()

    async with connect(house.http(""), Start(audio=format)) as stream, asyncio.TaskGroup() as tasks:
        tasks.create_task(speak(stream))
        async for message in stream:
            captions.receive(message)
    return captions.committed


@pytest.mark.parametrize(
    ("format", "ways"),
    [
        (PLAIN, {"/recall": recall, "/attendee": attendee, "/acs": communication}),
        (TELEPHONE, {"/twilio": call}),
    ],
    ids=["meetings", "telephone"],
)
async def test_bots_are_heard_as_well_as_our_own_clients(
    house: Running,
    tmp_path: Path,
    format: AudioFormat,
    ways: dict[str, Callable[[bytes], Iterator[dict[str, Any]]]],
) -> None:
    file, reference = clip(tmp_path)
    audio = file.read_bytes()
    if format is TELEPHONE:
        plain = np.frombuffer(audio, "<i2").astype(np.float32)
        # Enough of a low-pass for a telephone.
        smooth = np.convolve(plain, np.array([0.25, 0.5, 0.25], np.float32), "same")
        audio = mulaw(smooth[::2].astype("<i2").tobytes())
    native = rate(reference, [await natively(house, audio, format)])
    for path, frames in ways.items():
        found = await told(house, path, frames(audio))
        assert rate(reference, [found]) <= native + ALLOWED, (path, native, found)
