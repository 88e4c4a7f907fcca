"""The journal as a server has it: opened, locked against other servers, tended, closed."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from pathlib import Path

from streaming.background import background
from streaming.errors import SettingsError
from streaming.kept.journal import Journal
from streaming.kept.keptaudio import AudioKeeper
from streaming.kept.port import SessionStore
from streaming.kept.recordings import Recordings
from streaming.kept.store import Store, StoreError
from streaming.kept.webhooks import Announcer, Webhooks
from streaming.observe.metrics import Metrics
from streaming.settings import Settings, journal_folder

from .history import History
from .services import Services

DATABASE = "journal.sqlite3"
AUDIO = "audio"


@asynccontextmanager
async def keeping(settings: Settings, metrics: Metrics) -> AsyncIterator[History | None]:
    """What outlives this process; None where nothing shall. Raises `SettingsError`."""
    if not settings.journal.on:
        yield None
        return
    if settings.journal.url:
        store = await asyncio.to_thread(_shared, settings)
        async with _journal(store, settings, metrics) as journal:
            yield History(journal, settings.journal)
        return
    folder = journal_folder(settings)
    with locked(folder):
        audio = _keeper(folder / AUDIO, metrics) if settings.journal.audio else None
        # Those of earlier days are looked after all the same.
        recordings = audio or Recordings(folder / AUDIO)
        try:
            async with _journal(await _own(folder, settings), settings, metrics) as journal:
                yield History(journal, settings.journal, recordings)
        finally:
            if audio is not None:
                await audio.close()


@asynccontextmanager
async def _journal(store: SessionStore, settings: Settings, metrics: Metrics) -> AsyncIterator[Journal]:
    journal = Journal(store, metrics)
    if settings.webhooks.url:
        journal.announce = Announcer(settings.webhooks, journal.now)
    journal.start()
    try:
        async with _sending(journal, settings, metrics):
            yield journal
    finally:
        await journal.close()


async def _own(folder: Path, settings: Settings) -> Store:
    try:
        return await asyncio.to_thread(_open, folder / DATABASE, settings.webhooks.most)
    except StoreError as error:
        raise SettingsError(f"journal.path: {error}, or set journal.on = false") from error


def _shared(settings: Settings) -> SessionStore:
    """In Redis; raises `SettingsError`."""
    try:
        opened: Callable[..., SessionStore] = vars(import_module("streaming.cluster.redis_store"))["opened"]
    except ImportError:
        raise SettingsError(
            "journal.url: Redis needs its client: pip install 'seamscribe[redis]', or leave it out"
        ) from None
    return opened(settings.journal.url, most_deliveries=settings.webhooks.most)


@asynccontextmanager
async def _sending(journal: Journal, settings: Settings, metrics: Metrics) -> AsyncIterator[None]:
    if not settings.webhooks.url:
        yield
        return
    async with background(Webhooks(journal, settings.webhooks, metrics).run()):
        yield


def _keeper(folder: Path, metrics: Metrics) -> AudioKeeper:
    try:
        return AudioKeeper(folder, metrics)
    except ImportError:
        raise SettingsError(
            "journal.audio: keeping audio needs PyAV: pip install 'seamscribe[files]', or set it to false"
        ) from None


def _open(path: Path, most_deliveries: int) -> Store:
    return Store(path, most_deliveries=most_deliveries)


@asynccontextmanager
async def tending(history: History | None, services: Services) -> AsyncIterator[None]:
    """Look after what is kept for as long as the block lasts."""
    if history is None:
        yield
        return
    history.journal.taken, history.journal.whole = services.sessions.taken, services.sessions.whole
    async with background(history.tend(services)), background(services.quotas.tend()):
        yield


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other servers out of the folder; raises `SettingsError`."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise SettingsError(
            f"journal.path: cannot write below {folder} ({error.strerror}): name another folder, or set"
            " journal.on = false"
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingsError(
                f"journal.path: another server keeps its sessions in {folder}: name another folder, or set"
                " journal.on = false"
            ) from None
        yield
    finally:
        os.close(lock)
