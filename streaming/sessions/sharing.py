"""What a process shares with others where the journal is shared, by name: its libraries are an extra."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from streaming.access.auth import Authority, Ticketing
from streaming.access.quota import Books, Quotas
from streaming.access.settings import AuthSettings

from .history import History
from .ports import Peers


@asynccontextmanager
async def joined(history: History | None, address: str) -> AsyncIterator[Peers | None]:
    """Be one of the processes that share a journal for as long as the block lasts, at `address`; None where
    it is not shared."""
    if history is None or not history.journal.store.shared:
        yield None
        return
    member = vars(import_module("streaming.cluster.membership"))["Membership"](history.journal, address)
    async with member.joined():
        yield member


def authority_of(settings: AuthSettings, history: History | None) -> Authority:
    """Who knows keys and tokens, those that other processes made too."""
    tickets: Ticketing | None = _shared(history, "SharedTickets", settings.max_tokens)
    return Authority(settings.keys, settings.max_tokens, time.monotonic, tickets)


async def quotas_of(settings: AuthSettings, history: History | None) -> Quotas:
    """What keys use, in other processes too, and did before this one."""
    if history is None:
        return Quotas(settings.keys)
    books: Books | None = _shared(history, "SharedBooks")
    # What is counted with others is asked for when it is needed.
    used = await history.used() if books is None else ()
    return Quotas(settings.keys, note=history.use, used=used, books=books)


def _shared(history: History | None, name: str, *more: object) -> Any:
    if history is None or not history.journal.store.shared:
        return None
    return vars(import_module("streaming.cluster.access"))[name](history.journal.store, *more)
