"""One session at work: audio in, decodes run, events kept and sent. Everything but the socket.

The core `Session` decides; here is only what it must not know: tasks, clocks, the engine, the outbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.contract import (
    NOT_TAKEN,
    SAMPLE_RATE,
    EngineError,
    Priority,
    RecognitionTask,
    SpeakerEncoder,
    SpeakerTask,
    SpeakerWindow,
    SpeechDetector,
    Vector,
)
from engine.dispatcher import Dispatcher

from .core.events import Ended, Flushed
from .core.listening import ListeningSettings
from .core.meeting import Meeting
from .core.settings import SessionSettings
from .core.spans import to_samples, to_seconds
from .core.speakers import Linker, LinkerSettings
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


def no_voices(names: Sequence[str]) -> Mapping[str, Vector]:
    """Nobody is enrolled."""
    if names:
        message = f"voices: {names[0]!r} is not enrolled: leave it out"
        raise ProtocolError("unknown_voice", message, field="voices")
    return {}


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
    encoder: SpeakerEncoder | None = None
    """Tells voices apart; None where its weights are not there or nobody wants it."""
    listening: ListeningSettings | None = None
    load_voices: Callable[[Sequence[str]], Mapping[str, Vector]] = no_voices
    """Enrolled voices by name; raises `ProtocolError` for a name that nobody has."""


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
        self._meeting = Meeting(
            entry.id,
            self.settings,
            capabilities,
            language=start.language,
            context=start.context,
            hotwords=start.hotwords,
            tracks=tuple(track.name for track in start.tracks),
            linker=self._linker(start),
            listening=services.listening,
        )
        self._intake = Intake(start.audio, services.detector, len(start.tracks) or 1, services.inline)
        self._entry = entry
        entry.renamer = self.rename
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

    def _linker(self, start: Start) -> Linker | None:
        """What tells the voices apart, if they are to be; raises `ProtocolError` where they cannot be."""
        services = self._services
        wanted = self.settings.speakers if start.options.speakers is None else start.options.speakers
        if start.tracks or not (wanted or start.voices):
            return None
        if services.encoder is None:
            if start.options.speakers is None and not start.voices:
                return None
            raise ProtocolError(
                "no_speakers",
                "options.speakers: this server cannot tell voices apart: leave it and voices out, or have the"
                " server set up with `seamscribe weights speakers`",
                field="options.speakers" if start.options.speakers else "voices",
            )
        traits = services.encoder.traits
        linker = Linker(LinkerSettings(same=traits.same, revise_s=self.settings.revise_s))
        for name, vector in services.load_voices(start.voices).items():
            linker.know(name, vector)
        return linker

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Decodes will run in `group`."""
        self._group = group

    @property
    def received(self) -> int:
        """Samples received, on the session's clock."""
        return self._meeting.received

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
        async for frames, voices in self._intake.feed(data):
            # While a thread judged the piece or there was no room, somebody may have ended the session.
            if self._ending:
                return
            self._meeting.receive_audio(frames, voices)
            self._delays.received(self._meeting.received, self._loop.time())
            self._pump()
            if self._meeting.received > self._limits.max_session_s * SAMPLE_RATE:
                raise SessionTooLong(self._limits.max_session_s)
            await self.room()
        self._feeding = False

    def flush(self, id: str) -> None:
        """Make everything received final; answered by `flushed`."""
        self._flushes += 1
        self._meeting.receive_flush(id)
        self._pump()

    def end(self) -> None:
        """No more audio: the last words and the receipt follow. Again: nothing."""
        if self._ending:
            return
        self._ending = True
        if self._feeding:
            # Cut off inside a packet: what the decoder still holds belongs behind the piece not taken.
            self._meeting.receive_end(self._intake.nothing)
        else:
            frames, voices, tails = self._intake.finish()
            if frames[0].size:
                self._meeting.receive_audio(frames, voices)
            self._meeting.receive_end(tails)
        self._pump()
        if not self.ended.is_set():
            self._spawn_deadline()

    def rename(self, speaker: int, name: str) -> None:
        """From now on, and for everything said before, `speaker` is called `name`; empty: by its number
        again. Raises KeyError for a number that nobody has."""
        self._meeting.rename(speaker, name)
        self._pump()

    def stretch(self, factor: float) -> None:
        """Load: refresh intervals are multiplied by `factor`."""
        self._meeting.stretch(factor)

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
        return "engine" if self._meeting.backlog > self._limits.max_backlog_s * SAMPLE_RATE else None

    def _pump(self) -> None:
        """Carry out what the session wants now."""
        meeting = self._meeting
        for id in meeting.tasks_to_cancel():
            if running := self._running.pop(id, None):
                running.cancel()
        while tasks := meeting.tasks_to_run():
            for task in tasks:
                self._run(task)
        for window in meeting.windows_to_hear():
            self._listen(window)
        for event in meeting.events_to_send():
            self._delays.observe(event, self._loop.time())
            self._outbox.put(self._entry.record.keep(present(event)))
            if isinstance(event, Flushed):
                self._flushes -= 1
            elif isinstance(event, Ended):
                self._entry.renamer = None  # nothing follows the receipt
                self.ended.set()
        self._eased.set()

    def _run(self, task: RecognitionTask) -> None:
        if self._given_up:
            self._meeting.receive_failure(task.id, "finish_deadline", retryable=False)
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
            self._meeting.receive_hypothesis(task.id, hypothesis)
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
        assert self._services.encoder is not None
        heard: SpeakerWindow | None = None
        try:
            heard = await self._services.encoder.voices(window)
        except EngineError as error:
            self._services.metrics.unheard.add(cause=error.cause)
        self._running.pop(window.id, None)
        self._meeting.receive_voices(window.id, heard)
        self._pump()

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
            self._meeting.receive_failure(id, "finish_deadline", retryable=False)
            self._meeting.receive_voices(id, None)
        self._pump()
