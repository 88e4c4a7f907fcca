"""One session at work: audio in, decodes run, events kept and sent. Everything but the socket.

The core `Session` decides; here is only what it must not know: tasks, clocks, the engine, the outbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from engine.contract import (
    NOT_TAKEN,
    SAMPLE_RATE,
    EngineError,
    Priority,
    RecognitionTask,
    SpeechDetector,
)
from engine.dispatcher import Dispatcher

from .core.events import Ended, Flushed
from .core.framing import EMPTY
from .core.session import Session
from .core.settings import SessionSettings
from .core.spans import to_samples, to_seconds
from .delays import DelayMeter
from .errors import SessionTooLong
from .intake import INLINE, Intake
from .metrics import Metrics
from .outbox import Outbox
from .sessions import Entry, Sessions
from .settings import LimitSettings
from .transcripts import present
from .wire.errors import ProtocolError
from .wire.messages import Start

RETRIES = 4
"""Failures in a row after which a final is given up, however retryable the engine says it is."""

FLUSHES = 64
"""So many flushes may wait for their decode before the socket is not read for a while."""

RETRY_S = 0.25
"""Pause before the first retry; it doubles each time."""

LONGEST_RETRY_S = 2.0

OUTAGE_S = 120.0
"""So long a final waits for an engine that takes no tasks at all, because it is being started again, say:
the audio is kept, and a task that nobody began has not failed."""


@dataclass(frozen=True, slots=True)
class Services:
    """What every session of the process shares."""

    session: SessionSettings
    limits: LimitSettings
    sessions: Sessions
    dispatcher: Dispatcher
    detector: SpeechDetector
    metrics: Metrics
    engine_counts: Callable[[], Mapping[str, float]] = dict
    """What the engine counts itself, by name."""
    inline: int = INLINE
    """Up to this many samples are judged in the event loop, larger pieces in a thread."""


def settings_for(start: Start, base: SessionSettings) -> SessionSettings:
    """The server's session settings with what the client asked for."""
    options = start.options
    pause = base.pause_s if options.pause_s is None else options.pause_s
    return replace(
        base,
        max_delay_s=base.max_delay_s if options.max_delay_s is None else options.max_delay_s,
        pause_s=pause,
        # Padding of neighbouring segments must fit into the pause between them, counted in whole samples.
        pad_s=min(base.pad_s, to_seconds(to_samples(pause) // 2)),
        soft_pause_s=min(base.soft_pause_s, pause / 2),
    )


class Live:
    """A session between its first and its last sample. Belongs to one event loop; decodes run in the task
    group given to `begin`."""

    def __init__(self, start: Start, entry: Entry, outbox: Outbox, services: Services) -> None:
        self._services = services
        self._limits = services.limits
        capabilities = services.dispatcher.capabilities
        if start.language and capabilities.languages and start.language not in capabilities.languages:
            raise ProtocolError(
                "unsupported_language",
                f"language: {start.language} is not known to this engine: leave it out or use one of "
                + ", ".join(capabilities.languages),
                field="language",
            )
        self.settings = settings_for(start, services.session)
        self._session = Session(
            entry.id,
            self.settings,
            capabilities,
            language=start.language,
            context=start.context,
            hotwords=start.hotwords,
        )
        if start.tracks:
            raise ProtocolError("bad_field", "tracks: not served yet: leave it out", field="tracks")
        self._intake = Intake(start.audio, services.detector, inline=services.inline)
        self._entry = entry
        self._outbox = outbox
        self._delays = DelayMeter(services.metrics)
        self._loop = asyncio.get_running_loop()
        self._group: asyncio.TaskGroup | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        self._failures = 0
        self._tries = 0
        self._out_since: float | None = None
        self._flushes = 0
        self._feeding = False
        self._ending = False
        self._given_up = False
        self._eased = asyncio.Event()
        self.ended = asyncio.Event()
        """Set once the receipt is in the outbox."""
        self.paused = False
        """Whether somebody waits in `room`."""

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Decodes will run in `group`."""
        self._group = group

    @property
    def received(self) -> int:
        """Samples received, on the session's clock."""
        return self._session.received

    @property
    def ending(self) -> bool:
        """Whether no more audio is taken."""
        return self._ending

    @property
    def flushing(self) -> bool:
        """Whether a flush waits for its answer."""
        return self._flushes > 0

    async def feed(self, data: bytes) -> None:
        """Take in audio bytes; waits where there is no room. Raises `ProtocolError`, `SessionTooLong`."""
        self._feeding = True
        async for (frames,), (voices,) in self._intake.feed(data):
            # While a thread judged the piece or there was no room, somebody may have ended the session.
            if self._ending:
                return
            self._session.receive_audio(frames, voices)
            self._delays.received(self._session.received, self._loop.time())
            self._pump()
            if self._session.received > self._limits.max_session_s * SAMPLE_RATE:
                raise SessionTooLong(self._limits.max_session_s)
            await self.room()
        self._feeding = False

    def flush(self, id: str) -> None:
        """Make everything received final; answered by `flushed`."""
        self._flushes += 1
        self._session.receive_flush(id)
        self._pump()

    def end(self) -> None:
        """No more audio: the last words and the receipt follow. Again: nothing."""
        if self._ending:
            return
        self._ending = True
        if self._feeding:
            # Cut off inside a packet: what the decoder still holds belongs behind the piece not taken.
            self._session.receive_end(EMPTY)
        else:
            (frames,), (voices,), (tail,) = self._intake.finish()
            if frames.size:
                self._session.receive_audio(frames, voices)
            self._session.receive_end(tail)
        self._pump()
        if not self.ended.is_set():
            self._spawn_deadline()

    def stretch(self, factor: float) -> None:
        """Load: refresh intervals are multiplied by `factor`."""
        self._session.stretch(factor)

    def eased(self) -> None:
        """The outbox became shorter."""
        self._eased.set()

    async def room(self) -> None:
        """Return once more audio may be taken: at once unless the engine or the client is behind.

        Never waits for ever: replies have deadlines in the dispatcher, sending has one in the writer.
        """
        while not self._ending and (reason := self._crowded()):
            if not self.paused:
                self._services.metrics.paused.add(reason=reason)
            self.paused = True
            self._eased.clear()
            await self._eased.wait()
        self.paused = False

    def _crowded(self) -> str | None:
        if self._outbox.full:
            return "client"
        # Without a decode running nothing would ever ease the backlog but more audio.
        if not self._running:
            return None
        if self._flushes >= FLUSHES:
            return "flush"
        return "engine" if self._session.backlog > self._limits.max_backlog_s * SAMPLE_RATE else None

    def _pump(self) -> None:
        """Carry out what the session wants now."""
        session = self._session
        for id in session.tasks_to_cancel():
            if running := self._running.pop(id, None):
                running.cancel()
        while tasks := session.tasks_to_run():
            for task in tasks:
                self._run(task)
        for event in session.events_to_send():
            self._delays.observe(event, self._loop.time())
            message = present(event)
            self._entry.record.keep(message)
            self._outbox.put(message)
            if isinstance(event, Flushed):
                self._flushes -= 1
            elif isinstance(event, Ended):
                self.ended.set()
        self._eased.set()

    def _run(self, task: RecognitionTask) -> None:
        if self._given_up:
            self._session.receive_failure(task.id, "finish_deadline", retryable=False)
        else:
            assert self._group is not None, "begin comes first"
            self._running[task.id] = self._group.create_task(self._decode(task))

    async def _decode(self, task: RecognitionTask) -> None:
        try:
            hypothesis = await self._services.dispatcher.recognize(task)
        except EngineError as error:
            await self._failed(task, error)
        else:
            self._recovered()
            self._session.receive_hypothesis(task.id, hypothesis)
        self._running.pop(task.id, None)
        self._pump()

    async def _failed(self, task: RecognitionTask, error: EngineError) -> None:
        """Tell the session, after a pause where it will try again at once."""
        final = task.priority is Priority.FINAL
        retryable = error.retryable and (not final or self._worth_another(error))
        if final and retryable:
            self._services.metrics.retries.add(cause=error.cause)
        if retryable or not final:
            await asyncio.sleep(min(RETRY_S * 2 ** max(0, self._tries - 1), LONGEST_RETRY_S))
        else:
            self._recovered()
        self._session.receive_failure(task.id, error.cause, retryable=retryable)

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

    def _spawn_deadline(self) -> None:
        assert self._group is not None, "begin comes first"
        self._group.create_task(self._deadline())

    async def _deadline(self) -> None:
        try:
            async with asyncio.timeout(self._limits.finish_s):
                await self.ended.wait()
        except TimeoutError:
            self.give_up()

    def give_up(self) -> None:
        """Declare what is not decoded yet a gap, so that the receipt comes now."""
        self._given_up = True
        self.end()
        running, self._running = self._running, {}
        for id, task in running.items():
            task.cancel()
            self._session.receive_failure(id, "finish_deadline", retryable=False)
        self._pump()
