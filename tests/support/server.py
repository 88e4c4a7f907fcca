"""A real server on loopback with the scripted engine, inside the test's event loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from engine.contract import Recognizer
from engine.fake import FakeRecognizer, FakeScript
from streaming.serve import server_for
from streaming.sessions.services import Services
from streaming.settings import LimitSettings
from tests.support.services import services_of


@dataclass(frozen=True)
class Running:
    address: str
    """Host and port."""
    services: Services

    @property
    def stream(self) -> str:
        return f"ws://{self.address}/v1/stream"

    def http(self, path: str) -> str:
        return f"http://{self.address}{path}"


@asynccontextmanager
async def server(
    script: FakeScript | None = None,
    *,
    recognizer: Recognizer | None = None,
    services: Mapping[str, Any] | None = None,
    tls: ssl.SSLContext | None = None,
    **limits: Any,
) -> AsyncIterator[Running]:
    """`services` are more fields of `Services`."""
    shared = services_of(recognizer or FakeRecognizer(script), LimitSettings(**limits), **(services or {}))
    async with listening(shared, tls) as running:
        yield running


@asynccontextmanager
async def listening(services: Services, tls: ssl.SSLContext | None = None) -> AsyncIterator[Running]:
    """These services on loopback; drained and closed at the end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        uvicorn = server_for(services, tls)
        serving = asyncio.create_task(uvicorn.serve(sockets=[listener]))
        await uvicorn.listening.wait()
        try:
            yield Running(f"127.0.0.1:{listener.getsockname()[1]}", services)
        finally:
            await services.sessions.drain(5.0)
            uvicorn.should_exit = True
            await serving
            await services.dispatcher.close()
