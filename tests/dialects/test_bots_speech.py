"""A telephone call with real speech: two people over Twilio's protocol, real weights, and the captions
found as an operator finds them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import numpy as np
import pytest

from clients.captions import Captions
from clients.dialing import Direct
from streaming.access.settings import AuthSettings
from streaming.app import running
from streaming.settings import AdmissionSettings, EngineSettings, JournalSettings, Settings
from streaming.wire.codec import JsonCodec
from tests.dialects.test_bots import CONNECTED, STOP, media, mulaw, start
from tests.engine.real import errors, needs_data, needs_weights, recording, references, spoken
from tests.support.keys import ADMIN, KEYS, READ, SPEAK, bearer
from tests.support.server import Running, listening
from tests.support.sound import s16

MODEL = "tiny.en"
PARTS = ("utterances_en/ljspeech/LJ001-0001.flac", "utterances_en/ljspeech/LJ001-0004.flac")
SPEED = 3.0
PARAMETERS = {"token": SPEAK, "inbound": "Ann", "outbound": "Bob"}
ALLOWED = 0.15
"""Word error rate, of some twenty words heard as a telephone hears them."""


def sides() -> tuple[bytes, bytes]:
    """What each of two people says, mu-law at 8 kHz: the second begins before the first is done."""
    first, second = (recording(part) for part in PARTS)
    begin = first.size - 8000
    audio = np.zeros((2, begin + second.size + 16_000), np.float32)
    audio[0, : first.size], audio[1, begin : begin + second.size] = first, second
    # Every other sample of what is smoothed over three: enough of a low-pass for a telephone.
    smooth = (audio[:, :-2] + 2 * audio[:, 1:-1] + audio[:, 2:]) / np.float32(4)
    return mulaw(s16(smooth[0, ::2])), mulaw(s16(smooth[1, ::2]))


async def call(server: Running) -> None:
    """A call from the first frame to the last."""
    async with Direct(f"ws://{server.address}/twilio", proxy=None) as socket:
        await socket.send(json.dumps(CONNECTED))
        await socket.send(json.dumps(start("inbound", "outbound", **PARAMETERS)))
        pair = sides()
        for chunk in range(len(pair[0]) // 160):
            for track, data in zip(("inbound", "outbound"), pair, strict=True):
                await socket.send(json.dumps(media(track, chunk, data[160 * chunk : 160 * (chunk + 1)])))
            await asyncio.sleep(0.02 / SPEED)
        await socket.send(json.dumps(STOP))
        await socket.wait_closed()
        assert socket.close_code == 1000


async def read(server: Running, id: str) -> Captions:
    """As a reader hears it from the start."""
    captions = Captions()
    address = f"ws://{server.address}/v1/sessions/{id}/events"
    async with Direct(address, proxy=None, additional_headers=bearer(READ)) as socket:
        async for frame in socket:
            captions.receive(JsonCodec().decode_server(frame))
    return captions


@pytest.mark.real
@pytest.mark.timeout(300)
@needs_data
@needs_weights(MODEL)
async def test_a_call_between_two_people(tmp_path: Path) -> None:
    settings = Settings(
        engine=EngineSettings(kind="local", model=MODEL),
        auth=AuthSettings(keys=KEYS),
        journal=JournalSettings(path=str(tmp_path)),
        # Whether there is room on a machine that others use is not what is tried here.
        admission=AdmissionSettings(on=False),
    )
    async with running(settings) as services, listening(services) as server:
        calling = asyncio.create_task(call(server))
        async with httpx.AsyncClient(
            base_url=server.http(""), trust_env=False, headers=bearer(ADMIN)
        ) as client:
            async with asyncio.timeout(30):
                found: list[dict[str, str]] = []
                while not found:
                    await asyncio.sleep(0.1)
                    found = (await client.get("/v1/sessions")).json()["sessions"]
            assert [(one["label"], one["state"]) for one in found] == [("CA1", "live")]
            captions = await read(server, found[0]["session"])
            await calling
    assert captions.faults == []
    assert captions.names == {1: "Ann", 2: "Bob"}
    assert captions.receipt is not None
    assert captions.receipt.gap_samples == 0
    said = [" ".join(s.text for s in captions.ordered() if s.track == track) for track in (0, 1)]
    texts = [spoken(references()[part]) for part in PARTS]
    rates = [errors(text, spoken(heard)) for text, heard in zip(texts, said, strict=True)]
    assert max(rates) <= ALLOWED, (rates, said)
