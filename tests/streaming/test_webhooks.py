"""What webhooks are owed, how it is signed, when it is tried again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from streaming.access.posting import PostError
from streaming.background import background
from streaming.kept import webhooks as module
from streaming.kept.journal import Journal
from streaming.kept.log import Log, State
from streaming.kept.store import Store
from streaming.kept.stored import Delivery
from streaming.kept.webhooks import AT_ONCE, Announcer, Webhooks
from streaming.observe.metrics import Metrics
from streaming.settings import WebhookSettings
from streaming.wire.messages import Ended, Named, Speaker, Start
from streaming.wire.signature import sign, verify
from tests.clients.build import receipt
from tests.streaming.test_log import segment
from tests.support.waiting import until

SECRET = "a secret of some length"
SETTINGS = WebhookSettings(url="https://hooks.example/x", secret=SECRET, segments=True)
END = Ended(0, receipt(800, 2))


def test_a_signature_holds_for_its_body_its_secret_and_its_time() -> None:
    header = sign(SECRET, b"body", 1000)
    assert verify(SECRET, b"body", header, 1000)
    assert verify(SECRET, b"body", header, 1300)
    assert not verify(SECRET, b"body", header, 1301)
    assert not verify(SECRET, b"body", header, 699)
    assert not verify(SECRET, b"bodies", header, 1000)
    assert not verify("another secret", b"body", header, 1000)
    assert not verify(SECRET, b"body", header.replace("t=1000", "t=1100"), 1100)
    for other in ("", "t=1000", header + ",v1=00", header.upper(), "t=-1,v1=" + "0" * 64):
        assert not verify(SECRET, b"body", other, 1000)


def announced(messages: list[State], settings: WebhookSettings = SETTINGS) -> list[dict[str, Any]]:
    announcer, found = Announcer(settings, lambda: 5000), []

    def on_put(key: str, seq: int, state: State) -> None:
        found.extend(announcer("s", key, seq, state))

    log = Log(on_put)
    for message in messages:
        log.put(message)
    bodies: list[dict[str, Any]] = [msgspec.json.decode(delivery.body) for delivery in found]
    assert [d.id for d in found] == [body["id"] for body in bodies]
    assert len({d.id for d in found}) == len(found)
    return bodies


MEETING: list[State] = [
    segment(1, 1, 0, 3, final=False),
    segment(1, 2, 0, 5),
    segment(2, 1, 5, 7),
    segment(1, 3, 0, 4),  # split: this moves the second one in the log, which is no news of it
    segment(3, 1, 4, 5),
    Speaker(0, 3, 2, 1, frozen=True),
    Named(0, 1, "Ann"),
    END,
]


def test_final_segments_and_what_becomes_of_them_are_told_once_each() -> None:
    bodies = announced(MEETING)
    told = [(b["type"], b["message"].get("id", b["message"].get("segment"))) for b in bodies]
    assert told == [
        ("segment.final", 1),
        ("segment.final", 2),
        ("segment.final", 1),
        ("segment.final", 3),
        ("segment.speaker", 3),
        ("session.ended", None),
    ]
    assert {b["session"] for b in bodies} == {"s"}
    assert bodies[0]["message"]["text"] == "0 1 2 3 4"
    assert bodies[-1]["message"]["receipt"]["words"] == 2
    assert "spans" not in bodies[-1]["message"]["receipt"]


def test_by_default_only_the_end_is_told() -> None:
    bodies = announced(MEETING, replace(SETTINGS, segments=False))
    assert [b["type"] for b in bodies] == ["session.ended"]


class Receiver:
    """Answers as told, and takes its time."""

    def __init__(self, *answers: int | PostError) -> None:
        self.answers = list(answers)
        self.got: list[Delivery] = []
        self.most = self.now = 0
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, delivery: Delivery) -> int:
        self.now += 1
        self.most = max(self.most, self.now)
        await self.open.wait()
        self.now -= 1
        self.got.append(delivery)
        answer = self.answers.pop(0) if self.answers else 200
        if isinstance(answer, PostError):
            raise answer
        return answer


class Clock:
    """Seconds since 1970, as the test says."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


@asynccontextmanager
async def sending(
    path: Path, receiver: Receiver, clock: Clock, settings: WebhookSettings = SETTINGS
) -> AsyncIterator[tuple[Journal, Metrics]]:
    metrics = Metrics()
    journal = Journal(Store(path / "j"), metrics, clock=clock)
    journal.announce = Announcer(settings, journal.now)
    journal.start()
    try:
        async with background(Webhooks(journal, settings, metrics, receiver, lambda: 0.0).run()):
            yield journal, metrics
    finally:
        await journal.close()


def ended(journal: Journal, id: str) -> None:
    recorder = journal.begin(id, b"", b"", Start())
    recorder.put("end", 1, END)
    recorder.end()


async def test_delivered_once_and_then_forgotten(tmp_path: Path) -> None:
    receiver, clock = Receiver(), Clock()
    async with sending(tmp_path, receiver, clock) as (journal, metrics):
        ended(journal, "s")
        await until(lambda: metrics.webhooks.value(outcome="delivered") == 1)
        await until(lambda: journal.store.next_due() is None)
        # A name that is given later moves the end in the log; it is not told again.
        await until(lambda: not journal.live)
        journal.put("s", "end", 9, END)
        ended(journal, "t")
        await until(lambda: len(receiver.got) == 2)
    assert [d.session for d in receiver.got] == ["s", "t"]


async def test_tried_again_with_pauses_that_double_until_it_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.02)
    answers: list[int | PostError] = [500, PostError("no answer"), 301, 500, 500]
    receiver, clock = Receiver(*answers), Clock()
    settings = replace(SETTINGS, give_up_s=25.0)
    async with sending(tmp_path, receiver, clock, settings) as (journal, metrics):
        ended(journal, "s")
        for tries, pause in enumerate((2, 4, 8), 1):
            await until(lambda tries=tries: metrics.webhooks.value(outcome="failed") == tries)  # type: ignore[misc]
            await until(
                lambda pause=pause: journal.store.next_due() == round(1000 * (clock.at + pause))  # type: ignore[misc]
            )
            clock.at += pause
        # The next pause, of 16 s, would end after the 25 s for which it is worth trying.
        await until(lambda: metrics.webhooks.value(outcome="given_up") == 1)
        await until(lambda: journal.store.next_due() is None)
    assert len(receiver.got) == 4
    assert len({d.id for d in receiver.got}) == 1


async def test_what_was_owed_is_sent_by_the_next_process(tmp_path: Path) -> None:
    clock = Clock()
    stuck, healthy = Receiver(), Receiver()
    stuck.open.clear()
    async with sending(tmp_path, stuck, clock) as (journal, _):
        ended(journal, "s")
        await until(lambda: stuck.now)
    assert stuck.got == []
    async with sending(tmp_path, healthy, clock) as (journal, metrics):
        await until(lambda: metrics.webhooks.value(outcome="delivered") == 1)
    assert [d.session for d in healthy.got] == ["s"]


async def test_a_receiver_that_hangs_holds_up_nobody_and_few_wait_for_it_at_once(tmp_path: Path) -> None:
    receiver, clock = Receiver(), Clock()
    receiver.open.clear()
    async with sending(tmp_path, receiver, clock) as (journal, _):
        for number in range(10):
            ended(journal, f"s{number}")
        await until(lambda: receiver.now == AT_ONCE)
        await until(lambda: not journal.live)
        receiver.open.set()
        await until(lambda: len(receiver.got) == 10)
    assert receiver.most == AT_ONCE
    assert len({d.id for d in receiver.got}) == 10
