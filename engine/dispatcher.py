"""The asyncio shell over one recognizer: order, deadlines, cancellation, load, timing.

A `Dispatcher` is itself a `Recognizer`, so callers await `recognize` and cancel by cancelling. It belongs
to one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from .contract import (
    SAMPLE_RATE,
    Capabilities,
    EngineError,
    Hypothesis,
    Priority,
    RecognitionTask,
    Recognizer,
)
from .queue import LoadGauge, QueueFull, TaskQueue


@dataclass(frozen=True, slots=True)
class DispatchSettings:
    """Bounds of the waiting line. Seconds; a deadline runs from submission to reply, waiting included."""

    queue: int = 1024
    final_deadline_s: float = 60.0
    partial_deadline_s: float = 10.0
    deadline_per_audio_s: float = 0.5
    """What a batch task's deadline is at least, a second of its audio."""
    recordings: int = 0
    """Batch tasks that run at once; 0: all places but one, and where such a task may hold a whole recording,
    a sixteenth of the places."""

    def deadline(self, task: RecognitionTask) -> float:
        if task.priority is Priority.BATCH:
            return max(self.final_deadline_s, self.deadline_per_audio_s * len(task.audio) / SAMPLE_RATE)
        return self.final_deadline_s if task.priority is Priority.FINAL else self.partial_deadline_s

    def batch(self, capabilities: Capabilities) -> int:
        """How many batch tasks may run at once."""
        places = capabilities.concurrency
        whole = capabilities.recording_s is not None
        wanted = self.recordings or (places // 16 if whole else places - 1)
        return max(1, min(wanted, places - 1))


@dataclass(frozen=True, slots=True)
class Served:
    """How one task went. Seconds; `cause` is None where it was answered, else an `EngineError`'s cause."""

    task: RecognitionTask
    queue_s: float
    engine_s: float
    hypothesis: Hypothesis | None
    cause: str | None


@dataclass(frozen=True, slots=True)
class Load:
    """How busy the engine is. `stretch` is what refresh intervals are to be multiplied by; `brief`, whether
    refreshes are to hear less, too; `slow`, how long they take in the engine's own queue, as a multiple of
    what they may."""

    waiting: int
    running: int
    oldest_s: float
    utilisation: float
    stretch: float
    brief: bool
    slow: float = 0.0


@dataclass(slots=True, eq=False)
class _Call:
    """One caller's wait: `turn` is set when its task may run."""

    owner: asyncio.Task[object]
    turn: asyncio.Future[None]
    submitted: float
    started: float | None = None
    answered: bool = False
    abandoned: str | None = field(default=None)
    """Why it was cut off from here (a cause), None while it was not."""


class Dispatcher:
    """Serves tasks in the queue's order, `capabilities.concurrency` at once."""

    def __init__(
        self,
        recognizer: Recognizer,
        settings: DispatchSettings,
        observe: Callable[[Served], None] | None = None,
    ) -> None:
        self._recognizer = recognizer
        self._settings = settings
        self._observe = observe
        self._queue = TaskQueue(settings.queue)
        self._calls: dict[str, _Call] = {}
        self._loop = asyncio.get_running_loop()
        self._gauge = LoadGauge(recognizer.capabilities.concurrency, self._loop.time())
        self._batch = 0  # running
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        return self._recognizer.capabilities

    @property
    def load(self) -> Load:
        """The present load."""
        gauge, stretch = self._gauge, self.stretch
        waiting, oldest = len(self._queue), self._queue.oldest(self._loop.time())
        return Load(waiting, gauge.running, oldest, gauge.utilisation, stretch, gauge.brief, gauge.slow)

    @property
    def stretch(self) -> float:
        """What refresh intervals are to be multiplied by. Reading it is what advances it, so every session
        may ask as often as it likes: only one reader a period does the work."""
        now = self._loop.time()
        if self._gauge.due(now):
            self._gauge.step(self._queue.oldest(now), now)
        return self._gauge.factor

    def late(self, seconds: float) -> None:
        """A caller was woken so long after it wanted to be: this process has too little time."""
        self._gauge.late(seconds)

    @property
    def brief(self) -> bool:
        """Whether refreshes are to hear less, as of the newest `stretch`."""
        return self._gauge.brief

    async def recognize(self, task: RecognitionTask) -> Hypothesis:
        """Wait for a turn, then decode. Raises `EngineError` and nothing else, with these causes of its own:
        `queue_full`, `replaced`, `deadline`, `cancelled`, `closed`, `engine` (not the contract's error)."""
        owner = asyncio.current_task()
        assert owner is not None
        if task.id in self._calls:
            raise EngineError("duplicate", f"task {task.id} is being served already", retryable=False)
        call = _Call(owner, self._loop.create_future(), self._loop.time())
        self._enqueue(task)
        self._calls[task.id] = call
        self._admit()
        hypothesis: Hypothesis | None = None
        cause: str | None = "cancelled"
        try:
            hypothesis, cause = await self._serve(task, call), None
            call.answered = True
            return hypothesis
        except EngineError as error:
            cause = error.cause
            raise
        finally:
            self._release(task, call)
            self._report(task, call, hypothesis, cause)

    def cancel(self, id: str) -> bool:
        """Abandon a waiting or running task: its caller gets `EngineError("cancelled")`. False where no such
        task is known."""
        return self._abandon(id, "cancelled")

    async def close(self) -> None:
        """Abandon all tasks and close the recognizer."""
        self._closed = True
        for id in list(self._calls):
            self._abandon(id, "closed")
        await self._recognizer.close()

    def _enqueue(self, task: RecognitionTask) -> None:
        if self._closed:
            raise EngineError("closed", "the engine is shut down", retryable=False)
        try:
            displaced = self._queue.push(task, self._loop.time())
        except QueueFull as full:
            raise EngineError("queue_full", str(full), retryable=True) from None
        for loser in displaced:
            self._abandon(loser.id, "replaced")

    async def _serve(self, task: RecognitionTask, call: _Call) -> Hypothesis:
        seconds = self._settings.deadline(task)
        try:
            async with asyncio.timeout(seconds):
                await call.turn
                return await self._recognizer.recognize(task)
        except TimeoutError:
            raise EngineError("deadline", f"no answer within {seconds:g} s", retryable=True) from None
        except asyncio.CancelledError:
            if call.abandoned is None:
                raise
            call.owner.uncancel()
            raise EngineError(
                call.abandoned, f"task {task.id} was {call.abandoned}", retryable=call.abandoned == "replaced"
            ) from None
        except EngineError:
            raise
        except Exception as error:  # the contract allows one error only; an adapter broke it
            raise EngineError(
                "engine", f"the engine failed: {type(error).__name__}", retryable=False
            ) from error

    def _admit(self) -> None:
        """Give turns while there is room."""
        concurrency = self._recognizer.capabilities.concurrency
        while self._gauge.running + self._batch < concurrency:
            # What is live finds a place at once, if there is more than one.
            room = self._batch < self._settings.batch(self._recognizer.capabilities)
            queued = self._queue.pop(Priority.BATCH if room else Priority.REFRESH)
            if queued is None:
                return
            call = self._calls[queued.task.id]
            call.started = self._loop.time()
            self._run(queued.task, +1)
            if not call.turn.done():
                call.turn.set_result(None)

    def _release(self, task: RecognitionTask, call: _Call) -> None:
        del self._calls[task.id]
        if call.started is None:
            self._queue.cancel(task.id)
        else:
            self._run(task, -1)
            if call.answered and task.priority in (Priority.FIRST, Priority.REFRESH):
                self._gauge.served(self._loop.time() - call.started)
        self._admit()

    def _run(self, task: RecognitionTask, change: int) -> None:
        """A task started, or ended. Batch tasks take what is left: they make nobody's refreshes rarer."""
        if task.priority is Priority.BATCH:
            self._batch += change
        else:
            self._gauge.run(change, self._loop.time())

    def _report(
        self, task: RecognitionTask, call: _Call, hypothesis: Hypothesis | None, cause: str | None
    ) -> None:
        if self._observe is None:
            return
        now = self._loop.time()
        started = now if call.started is None else call.started
        self._observe(Served(task, started - call.submitted, now - started, hypothesis, cause))

    def _abandon(self, id: str, cause: str) -> bool:
        call = self._calls.get(id)
        if call is None or call.abandoned is not None:
            return False
        call.abandoned = cause
        call.owner.cancel()
        return True
