"""The decodes of one session while they run: started, tried again, cancelled, given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from engine.contract import (
    NOT_TAKEN,
    SAMPLE_RATE,
    EngineError,
    Priority,
    RecognitionTask,
    SpeakerTask,
    SpeakerWindow,
)
from streaming.core.meeting import Meeting

from .services import Services

RETRIES = 4
"""Failures in a row after which a final is given up, however retryable the engine says it is."""

RETRY_S = 0.25
"""Pause before the first retry; it doubles each time."""

LONGEST_RETRY_S = 2.0

OUTAGE_S = 120.0
"""So long a final waits for an engine that takes no tasks at all, because it is being started again, say:
the audio is kept, and a task that nobody began has not failed."""


class Decodes:
    """Carries out what a meeting wants of the engine, in the task group given to `begin`; `changed` is called
    after each answer."""

    def __init__(self, meeting: Meeting, services: Services, changed: Callable[[], None]) -> None:
        self._meeting = meeting
        self._dispatcher = services.dispatcher
        self._encoder = services.encoder
        self._metrics = services.metrics
        self._changed = changed
        self._batch, self._translate = services.batch, services.translate
        self.reached = 0
        """Of a recording, the newest sample that the output of a running decode has come to."""
        self._loop = asyncio.get_running_loop()
        self._group: asyncio.TaskGroup | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        self._failures = 0
        self._tries = 0
        self._out_since: float | None = None
        self._given_up = False

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Decodes will run in `group`."""
        self._group = group

    def carry_out(self) -> None:
        """Do what the meeting wants now."""
        for id in self._meeting.tasks_to_cancel():
            if running := self._running.pop(id, None):
                running.cancel()
        while tasks := self._meeting.tasks_to_run():
            for task in tasks:
                self._run(task)
        for window in self._meeting.windows_to_hear():
            self._listen(window)
        for repair in self._meeting.repairs():
            self._metrics.starved.add(outcome=repair.value)
        if echo := self._meeting.echo():
            self._metrics.echo.add(echo / SAMPLE_RATE)

    def give_up(self) -> None:
        """Answer for the engine, now and from now on: all that it has not decoded is a gap."""
        self._given_up = True
        running, self._running = self._running, {}
        for id, task in running.items():
            task.cancel()
            self._meeting.receive_failure(id, "finish_deadline", retryable=False)
            self._meeting.receive_voices(id, None)

    def drop(self) -> None:
        """Decode nothing more; nobody waits for answers."""
        self._given_up = True
        running, self._running = self._running, {}
        for task in running.values():
            task.cancel()

    def end(self) -> None:
        """Nothing is decoded any more. Whoever waited for changes is let go: a ring of references would keep
        its audio until the collector comes by, which in a large process is hours."""
        self._changed = _nobody

    def _run(self, task: RecognitionTask) -> None:
        if self._given_up:
            self._meeting.receive_failure(task.id, "finish_deadline", retryable=False)
        else:
            assert self._group is not None, "begin comes first"
            self._running[task.id] = self._group.create_task(self._decode(task))

    async def _decode(self, task: RecognitionTask) -> None:
        try:
            hypothesis = await self._dispatcher.recognize(self._asked(task))
        except EngineError as error:
            await self._failed(task, error)
        else:
            self._recovered()
            self._meeting.receive_hypothesis(task.id, hypothesis)
        self._running.pop(task.id, None)
        self._changed()

    def _asked(self, task: RecognitionTask) -> RecognitionTask:
        """The task as the engine gets it."""
        if not self._batch:
            return task
        return replace(task, priority=Priority.BATCH, translate=self._translate, progress=self._come_to)

    def _come_to(self, sample: int) -> None:
        self.reached = max(self.reached, sample)

    async def _failed(self, task: RecognitionTask, error: EngineError) -> None:
        """Tell the session, after a pause where it will try again at once."""
        final = task.priority is Priority.FINAL
        retryable = error.retryable and (not final or self._worth_another(error))
        if final and retryable:
            self._metrics.retries.add(cause=error.cause)
        if retryable or not final:
            await asyncio.sleep(min(RETRY_S * 2 ** max(0, self._tries - 1), LONGEST_RETRY_S))
        else:
            self._recovered()
        self._meeting.receive_failure(task.id, error.cause, retryable=retryable)

    def _worth_another(self, error: EngineError) -> bool:
        """Whether a final that failed is asked for again: a few times where an engine began it, and as long
        as an outage may last where none did."""
        self._tries += 1
        if error.cause not in NOT_TAKEN:
            self._failures += 1
            return self._failures < RETRIES
        now = self._loop.time()
        self._out_since = now if self._out_since is None else self._out_since
        return now - self._out_since < OUTAGE_S

    def _recovered(self) -> None:
        self._failures = self._tries = 0
        self._out_since = None

    def _listen(self, window: SpeakerTask) -> None:
        if self._given_up:
            self._meeting.receive_voices(window.id, None)
        else:
            assert self._group is not None, "begin comes first"
            self._running[window.id] = self._group.create_task(self._hear(window))

    async def _hear(self, window: SpeakerTask) -> None:
        assert self._encoder is not None
        heard: SpeakerWindow | None = None
        asked = self._loop.time()
        try:
            heard = await self._encoder.voices(window)
            self._metrics.speaker_time.observe(self._loop.time() - asked)
        except EngineError as error:
            self._metrics.unheard.add(cause=error.cause)
        self._running.pop(window.id, None)
        self._meeting.receive_voices(window.id, heard)
        self._changed()


def _nobody() -> None:
    """Nobody waits for changes."""
