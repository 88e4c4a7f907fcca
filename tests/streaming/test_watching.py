"""Every metric there is, is fed: by a server as the settings make it, in whole sessions and their faults."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from engine.contract import EngineError, Finish, Hypothesis, Priority, RecognitionTask
from engine.fake import FakeDetector, FakeEncoder, FakeRecognizer, FakeScript, SpeakerScript
from streaming import app
from streaming.kept import journal
from streaming.kept.port import Written
from streaming.kept.store import Store
from streaming.kept.stored import Batch
from streaming.observe.metrics import Histogram, Metric
from streaming.sessions import keeping
from streaming.settings import (
    AdmissionSettings,
    EngineSettings,
    JournalSettings,
    LimitSettings,
    Settings,
    WebhookSettings,
)
from tests.support.recordings import packets, recorded, tone
from tests.support.server import Running, listening
from tests.support.sound import s16, speech
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

UNFED = {
    "seamscribe_starved_total": "needs an engine that hears nothing for long: test_starvation.py",
    "seamscribe_echo_seconds_total": "needs two microphones near one voice: test_tracks.py",
}
"""Metrics that this walk does not feed, and why."""


class Engine(FakeRecognizer):
    """Answers final tasks as `plan` says, a loop without words, then as it should."""

    counters = {"prompt_tokens": 3.0}  # noqa: RUF012 - a constant here

    def __init__(self) -> None:
        super().__init__(FakeScript(delay_s=0.005, concurrency=1))
        self.plan: deque[Finish | EngineError] = deque()

    async def recognize(self, task: RecognitionTask) -> Hypothesis:
        heard = await super().recognize(task)
        if task.priority is not Priority.FINAL or not self.plan:
            return heard
        if isinstance(planned := self.plan.popleft(), EngineError):
            raise planned
        return replace(heard, finish=planned, words=() if planned is Finish.LOOP else heard.words)


class Disk(Store):
    """Fails or is slow when told to."""

    fails = False
    slow_s = 0.0

    def write(self, batch: Batch) -> Written:
        time.sleep(self.slow_s)
        if self.fails:
            raise sqlite3.OperationalError("database or disk is full")
        return super().write(batch)


@asynccontextmanager
async def speaking(running: Running, first: dict[str, Any]) -> AsyncIterator[tuple[ClientConnection, Any]]:
    """A client, and what it is told at first. There is room for one session."""
    await until(lambda: first["type"] == "resume" or not running.services.sessions.active)
    async with connect(f"{running.stream}?{first['type']}=", proxy=None) as socket:
        await socket.send(json.dumps(first))
        yield socket, json.loads(await socket.recv())


async def rest(socket: ClientConnection) -> None:
    with suppress(ConnectionClosed):
        while True:
            await socket.recv()


async def say(socket: ClientConnection, slots: str, *, end: bool = True) -> None:
    data = s16(speech(slots))
    for start in range(0, len(data), 32_000):
        await socket.send(data[start : start + 32_000])
    if end:
        await socket.send(json.dumps({"type": "end"}))
        await rest(socket)


async def whole_session(running: Running) -> None:
    """With a reader, and more audio at once than waits undecoded."""
    async with speaking(running, {"type": "start"}) as (socket, ready):
        path = f"/v1/sessions/{ready['session']}/events?token={ready['read_token']}"
        async with connect(f"ws://{running.address}{path}", proxy=None) as reader:
            await say(socket, "xxx...xx..." + 20 * "xx")
            await rest(reader)


async def engine_faults(running: Running, engine: Engine) -> None:
    engine.plan.extend((EngineError("engine", "planned", retryable=True), Finish.LENGTH))
    engine.plan.extend([Finish.LOOP] * 3)
    async with speaking(running, {"type": "start"}) as (socket, _):
        await say(socket, "xxxx....xx..")


async def lost_and_refused(running: Running) -> None:
    """A line breaks and its client comes back; another finds no room, a third speaks nonsense."""
    async with speaking(running, {"type": "start"}) as (socket, ready):
        await say(socket, "xx", end=False)
        socket.transport.abort()
    metrics = running.services.metrics
    await until(lambda: metrics.parted.value(reason="lost"))
    back = {"type": "resume", "session": ready["session"], "token": ready["token"]}
    async with speaking(running, {**back, "last_seq": 0, "next_sample": 0}) as (socket, again):
        assert again["resumed"]
        with pytest.raises(InvalidStatus):
            async with connect(running.stream, proxy=None):
                pass
        await say(socket, "xx..")
    async with speaking(running, {"type": "nonsense"}) as (_, told):
        assert told["type"] == "error"


async def broken_recording(running: Running) -> None:
    """A recording of which a piece went missing."""
    start = {"type": "start", "audio": {"encoding": "container", "sample_rate": 16_000, "channels": 1}}
    parts = packets(tone("mp4", 4.0), 1000)
    async with speaking(running, start) as (socket, _):
        for part in (*parts[:8], *parts[12:]):
            await socket.send(part)
        await say(socket, "")


async def another_protocol(running: Running) -> None:
    """With a field that means nothing here."""
    await until(lambda: not running.services.sessions.active)
    async with connect(
        f"ws://{running.address}/v1/listen?encoding=linear16&sample_rate=16000&whatever=1", proxy=None
    ) as socket:
        await socket.send(json.dumps({"type": "CloseStream"}))
        await rest(socket)


async def journal_faults(running: Running, disk: type[Disk]) -> None:
    metrics = running.services.metrics
    disk.slow_s = 0.5
    async with speaking(running, {"type": "start"}) as (socket, _):
        assert metrics.journal_late.value() == 1
        disk.slow_s, disk.fails = 0.0, True
        await say(socket, "xx..", end=False)
        await until(lambda: not metrics.journal_ok.value())
        await say(socket, "xx..")
        assert metrics.journal_lost.value() == 1
    disk.fails = False
    await until(metrics.journal_ok.value)


async def whole_file(running: Running) -> None:
    """A recording that is posted, not streamed."""
    await until(lambda: not running.services.sessions.active)
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.post(
            running.http("/v1/audio/transcriptions"),
            files={"file": ("speech.wav", recorded("wav", np.frombuffer(s16(speech("xx..")), np.int16)))},
            data={"model": "whisper-1"},
        )
    assert answer.status_code == 200, answer.text


def fed(metric: Metric | Histogram) -> bool:
    if isinstance(metric, Histogram):
        return metric.count > 0
    return bool(metric.series) if metric.kind == "gauge" else any(metric.series.values())


async def test_every_metric_is_fed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    encoder = FakeEncoder(SpeakerScript(failures={0: EngineError("overloaded", "planned", retryable=True)}))
    monkeypatch.setitem(app.ENGINES, "fake", lambda settings: (engine, FakeDetector()))
    monkeypatch.setattr(app, "_encoder", lambda settings: encoder)
    monkeypatch.setattr(keeping, "Store", Disk)
    monkeypatch.setattr(journal, "AGAIN_S", 0.01)
    monkeypatch.setattr(journal, "MOST_WAITING", 1)
    settings = Settings(
        engine=EngineSettings(kind="fake"),
        journal=JournalSettings(path=str(tmp_path), audio=True),
        webhooks=WebhookSettings("http://127.0.0.1:9/", "s" * 16, allow_private=True),
        limits=LimitSettings(max_sessions=1, max_backlog_s=2.0),
        admission=AdmissionSettings(on=False),
    )
    async with app.running(settings) as services, listening(services) as running:
        await whole_session(running)
        await engine_faults(running, engine)
        await lost_and_refused(running)
        await broken_recording(running)
        await another_protocol(running)
        await whole_file(running)
        await journal_faults(running, Disk)
        metrics = services.metrics
        await until(lambda: metrics.webhooks.value(outcome="failed") and metrics.memory.series)
        async with httpx.AsyncClient(trust_env=False) as http:
            assert (await http.get(running.http("/metrics"))).status_code == 200
        assert {name for name, metric in metrics.all.items() if not fed(metric)} == set(UNFED)
