"""Secrets for browsers: made by a key, good for one session, which is as it was described."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from tests.support.keys import READ, SPEAK, bearer, locked
from tests.support.server import Running, server

pytestmark = pytest.mark.e2e

SESSION = {
    "type": "transcription",
    "audio": {"input": {"format": {"type": "audio/pcmu"}, "turn_detection": {"type": "server_vad"}}},
}


async def ask(running: Running, body: Any, key: str = SPEAK, path: str = "client_secrets") -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        url = running.http(f"/v1/realtime/{path}")
        return await client.post(url, content=json.dumps(body), headers=bearer(key) if key else {})


def browse(running: Running, secret: str) -> open_socket:
    """As a page does."""
    offered = [Subprotocol("realtime"), Subprotocol(f"openai-insecure-api-key.{secret}")]
    return open_socket(f"ws://{running.address}/v1/realtime", subprotocols=offered, proxy=None)


async def session_of(socket: ClientConnection) -> Any:
    created = json.loads(await socket.recv())
    assert created["type"] == "session.created"
    return created["session"]


async def test_a_secret_opens_one_session_as_it_was_described() -> None:
    async with server(services=locked()) as running:
        answer = await ask(
            running, {"expires_after": {"anchor": "created_at", "seconds": 30}, "session": SESSION}
        )
        assert answer.status_code == 200
        made = answer.json()
        assert made["value"].startswith("ek_")
        assert 0 < made["expires_at"] - time.time() <= 31
        told = made["session"]["audio"]["input"]
        assert told["format"] == {"type": "audio/pcmu"}
        assert told["turn_detection"]["silence_duration_ms"] == 500
        async with browse(running, made["value"]) as socket:
            assert (await session_of(socket))["audio"]["input"] == told
            assert socket.subprotocol == "realtime"
        with pytest.raises(InvalidStatus) as refused:
            async with browse(running, made["value"]):
                pass
        assert refused.value.response.status_code == 401
        # A secret makes no secrets, and a key that may not speak neither.
        secret = (await ask(running, {})).json()["value"]
        assert (await ask(running, {}, secret)).status_code == 403
        assert (await ask(running, {}, READ)).status_code == 403
        assert (await ask(running, {}, "")).json()["error"]["code"] == "invalid_api_key"


async def test_the_beta_has_it_inside_the_session() -> None:
    async with server(services=locked()) as running:
        body = {"input_audio_format": "g711_alaw", "input_audio_transcription": {"model": "any"}}
        made = (await ask(running, body, path="transcription_sessions")).json()
        assert made["input_audio_format"] == "g711_alaw"
        async with browse(running, made["client_secret"]["value"]) as socket:
            assert (await session_of(socket))["audio"]["input"]["format"] == {"type": "audio/pcma"}


async def test_without_keys_a_secret_still_describes_the_session() -> None:
    async with server() as running:
        made = (await ask(running, {"session": SESSION}, "")).json()
        async with browse(running, made["value"]) as socket:
            assert (await session_of(socket))["audio"]["input"]["format"] == {"type": "audio/pcmu"}
        async with browse(running, made["value"]) as socket:
            assert (await session_of(socket))["audio"]["input"]["format"]["type"] == "audio/pcm"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"expires_after": {"seconds": 0}}, "expires_after.seconds"),
        ({"expires_after": {"seconds": "soon"}}, "expires_after.seconds"),
        ({"session": {"audio": {"input": {"format": "mp3"}}}}, "session.audio.input.format"),
        ([], None),
    ],
)
async def test_what_cannot_be_is_refused_naming_the_field(body: Any, param: str | None) -> None:
    async with server(services=locked()) as running:
        answer = await ask(running, body)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == param
        assert answer.json()["error"]["message"]


async def test_secrets_are_bounded() -> None:
    async with server(services=locked(most=4)) as running:
        assert (await ask(running, {})).status_code == 200
        answer = await ask(running, {})
        assert answer.status_code == 429
        assert "retry-after" in answer.headers
        assert (await ask(running, {"session": {"x": "y" * 5000}})).status_code == 413
