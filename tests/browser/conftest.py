"""A server with the real engine, and a browser for each test, for its microphone is played once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from streaming.app import running
from streaming.settings import EngineSettings, JournalSettings, Settings
from tests.support.browser import chromium
from tests.support.server import Running, listening
from tests.support.spoken import microphone

AXE = Path(__file__).resolve().parents[2] / ".venv-browser/node_modules/axe-core/axe.min.js"


@asynccontextmanager
async def speaking(folder: Path) -> AsyncIterator[tuple[Running, Callable[[], Any]]]:
    """A server that hears with `tiny.en`, and what opens tabs of a browser whose microphone hears speech."""
    settings = Settings(
        engine=EngineSettings(model="tiny.en", threads=1),
        journal=JournalSettings(path=str(folder / "journal")),
    )
    async with (
        running(settings) as services,
        listening(services) as server,
        chromium(folder, microphone=microphone(folder)) as tab,
    ):
        yield server, tab


@pytest.fixture(scope="session")
def axe() -> str:
    """The accessibility checks."""
    if not AXE.is_file():
        pytest.skip(f"no axe-core: npm install --prefix {AXE.parents[2].name} axe-core@4.14.1")
    return AXE.read_text(encoding="utf-8")
