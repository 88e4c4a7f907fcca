"""One server for all ways."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from .scene import Scene, clip, natively, rate, server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    folder = tmp_path_factory.mktemp("ways")
    file, reference = clip(folder)
    audio = file.read_bytes()
    async with server(folder) as (url, log):
        heard = await natively(url, audio)
        yield Scene(url, log, file, reference, rate(reference, [heard]))
