"""What a webhook is owed, and the sending of it: from the journal, so that no crash loses it.

Each delivery is tried until it is answered with 2xx, with pauses that double, or until it is too old. It may
arrive twice: its id stays the same. Nobody waits for it but this task.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

from streaming.access.posting import PostError, post, target_of
from streaming.background import first_of
from streaming.observe.metrics import Metrics
from streaming.settings import WebhookSettings
from streaming.wire.messages import Ended, Segment, Speaker
from streaming.wire.signature import HEADER, sign

from .journal import Journal
from .log import State
from .stored import Delivery

logger = logging.getLogger("seamscribe")

AT_ONCE = 4
"""Deliveries under way at the same time."""

FIRST_RETRY_S = 2.0
"""Pause before the second try; it doubles each time, up to `LONGEST_RETRY_S`, less up to half at random."""

LONGEST_RETRY_S = 3600.0

LOOK_S = 30.0
"""The journal is asked for what is due at least this often."""

Send = Callable[[Delivery], Awaitable[int]]
"""Tries one delivery: the status of the answer; raises `PostError`."""


class Announcer:
    """From what sessions say to deliveries; `now` gives milliseconds since 1970."""

    def __init__(self, settings: WebhookSettings, now: Callable[[], int]) -> None:
        self._segments = settings.segments
        self._now = now
        self._revisions: dict[str, dict[int, int]] = {}

    def __call__(self, session: str, key: str, seq: int, state: State) -> list[Delivery]:
        """What a change is announced with; as `journal.Announce`."""
        match state:
            case Ended():
                self._revisions.pop(session, None)
                return [self._delivery(session, "session.ended", seq, state)]
            case Segment(final=True, id=id, rev=rev) if self._segments:
                return self._news(session, id, rev, "segment.final", seq, state)
            case Speaker(segment=id, rev=rev) if self._segments and id in self._revisions.get(session, ()):
                return self._news(session, id, rev, "segment.speaker", seq, state)
            case _:
                return []

    def _news(self, session: str, id: int, rev: int, type: str, seq: int, state: State) -> list[Delivery]:
        """Not what only moved in the log."""
        known = self._revisions.setdefault(session, {})
        if known.get(id, 0) >= rev:
            return []
        known[id] = rev
        return [self._delivery(session, type, seq, state)]

    def _delivery(self, session: str, type: str, seq: int, state: State) -> Delivery:
        id, now = uuid.uuid4().hex, self._now()
        message: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(state, seq=seq))
        if isinstance(state, Ended):
            # The spans of hours are many; they are in the transcript.
            for receipt in (message["receipt"], *message.get("tracks", ())):
                del receipt["spans"]
        body = {"id": id, "type": type, "session": session, "created_ms": now, "message": message}
        return Delivery(id, session, msgspec.json.encode(body), now, 0, now)


class Webhooks:
    """Sends what is due, for as long as `run` runs."""

    def __init__(
        self,
        journal: Journal,
        settings: WebhookSettings,
        metrics: Metrics,
        send: Send | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._journal = journal
        self._settings = settings
        self._metrics = metrics
        self._send = send or self._post
        self._jitter = jitter
        self._target = target_of(settings.url)
        self._context = ssl.create_default_context() if self._target.secure else None
        self._news = asyncio.Event()
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Without end."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._journal.written.clear()
                self._news.clear()
                room = AT_ONCE - len(self._under_way)
                found = await self._due(room) if room else []
                for delivery in found:
                    task = group.create_task(self._deliver(delivery))
                    self._under_way[delivery.id] = task
                if not found:
                    await self._wait()

    async def _due(self, most: int) -> list[Delivery]:
        """What is to be tried now; nothing while the journal cannot be read."""
        store, now = self._journal.store, self._journal.now()
        try:
            return await asyncio.to_thread(store.due, now, most, tuple(self._under_way))
        except store.failures as error:
            logger.warning("webhooks wait: the journal cannot be read (%(error)s)", {"error": error})
            return []

    async def _wait(self) -> None:
        """For news, for a delivery that is done, or for one that becomes due."""
        due, seconds = None, LOOK_S
        with suppress(*self._journal.store.failures):
            due = await asyncio.to_thread(self._journal.store.next_due)
        if due is not None and len(self._under_way) < AT_ONCE:
            seconds = min(max((due - self._journal.now()) / 1000, 0.1), LOOK_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await first_of(self._journal.written.wait(), self._news.wait())

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            status = await self._send(delivery)
            reason = None if 200 <= status < 300 else f"HTTP {status}"
        except PostError as error:
            reason = str(error)
        again = None if reason is None else self._again(delivery)
        outcome = "delivered" if reason is None else "failed" if again is not None else "given_up"
        self._metrics.webhooks.add(outcome=outcome)
        said = {"webhook": delivery.id[:8], "outcome": outcome, "reason": reason}
        if reason is not None:
            logger.warning("webhook %(webhook)s %(outcome)s: %(reason)s", said)
        try:
            await self._journal.run(lambda: self._journal.store.tried(delivery.id, again))
        except Exception:
            # The disk fails. Until it is back this one is under way, or it would be sent again and again.
            logger.exception("webhook %(webhook)s: its outcome cannot be written", said)
            await asyncio.sleep(LOOK_S)
        del self._under_way[delivery.id]
        self._news.set()

    def _again(self, delivery: Delivery) -> int | None:
        """When to try again; None where it is too old for that."""
        pause = min(FIRST_RETRY_S * 2.0 ** min(delivery.tries, 16), LONGEST_RETRY_S)
        due = self._journal.now() + round(1000 * pause * (1 - self._jitter() / 2))
        return due if due < delivery.created + 1000 * self._settings.give_up_s else None

    async def _post(self, delivery: Delivery) -> int:
        settings = self._settings
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "seamscribe",
            "Seamscribe-Delivery": delivery.id,
            HEADER: sign(settings.secret, delivery.body, self._journal.now() // 1000),
        }
        return await post(
            self._target,
            delivery.body,
            headers,
            allow_private=settings.allow_private,
            deadline_s=settings.deadline_s,
            context=self._context,
        )
