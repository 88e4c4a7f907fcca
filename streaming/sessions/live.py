"""One session at work: audio in, decodes run, events kept. Everything but the socket, which it may lose and
get another.

The core `Meeting` decides; here is only what it must not know: tasks, clocks, the engine, the client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import assert_never

from engine.contract import SAMPLE_RATE
from streaming.access.privacy import Redactor
from streaming.audio.intake import Frames, Voices
from streaming.audio.samples import stride
from streaming.audio.splice import Splice
from streaming.core.events import Ended, Flushed
from streaming.errors import Expired, IdleClient, InternalFault, Restarting
from streaming.kept.remembering import encode
from streaming.kept.restore import Place
from streaming.kept.transcripts import present
from streaming.observe.hygiene import short
from streaming.wire.errors import ProtocolError, WireError, told
from streaming.wire.messages import Alive, Audio, ClientMessage, End, Flush, Hotwords, Start

from .decoding import Decodes
from .delays import DelayMeter
from .hearing import Hearing
from .ports import Client
from .registry import Entry, Outcome
from .services import Services, meeting_for, resumable, settings_for

logger = logging.getLogger("seamscribe")

FLUSHES = 64
"""So many flushes may wait for their decode before the socket is not read for a while."""

TICK_S = 0.5
"""Acknowledgements, load, idleness and whether a client is there are looked at this often."""


class Live:
    """A session from its first to its last sample, whoever is connected meanwhile. Belongs to one event
    loop."""

    def __init__(self, start: Start, entry: Entry, services: Services, place: Place | None = None) -> None:
        """`place` is where it goes on, if an earlier process began it. Raises `ProtocolError`."""
        self._services = services
        self._limits = services.limits
        self.settings = settings_for(start, services.session)
        self._meeting = meeting_for(entry.id, start, self.settings, services, place)
        self.decodes = Decodes(self._meeting, services, self._pump)
        # How long a recording's words took says nothing of those that are spoken now.
        self._delays = DelayMeter(services.metrics, self._meeting.received, timed=not services.batch)
        self._hearing = Hearing(start, entry, services, self._meeting, self._delays)
        self._splice = Splice(stride(start.audio), start.audio.sample_rate, self._meeting.received)
        self._inbox: asyncio.Queue[Audio | Flush | End] = asyncio.Queue()
        self._entry = entry
        self._redactor = Redactor(services.redact)
        self._loop = asyncio.get_running_loop()
        self._group: asyncio.TaskGroup | None = None
        self._client: Client | None = None
        self._left = self._heard = self._loop.time()
        self._flushes: list[str] = []
        self._again: set[str] = set()
        self._fault: WireError | None = None
        self._abandoned = self._gone = False
        self._closed = self._working = self._ending = self._paused = False
        self._eased = asyncio.Event()
        self._ended = asyncio.Event()
        entry.live, entry.renamer = self, self.rename
        entry.guest = entry.guest or not resumable(start)
        if place is not None:
            self._take_names()

    def _take_names(self) -> None:
        """Who was named before this process began stays so."""
        for speaker, name in list(self._entry.log.names.items()):
            with suppress(KeyError):  # a voice that was not heard again yet
                self._meeting.rename(speaker, name)
        self._pump()

    @property
    def received(self) -> int:
        """Samples received, on the session's clock."""
        return self._meeting.received

    @property
    def next_sample(self) -> int:
        """The sample on the 16 kHz clock that a client that comes back sends next."""
        return self._splice.next_sample

    @property
    def failed(self) -> bool:
        """Whether the session ends early: what its client still says is dropped."""
        return self._fault is not None

    # -- the client ------------------------------------------------------------------------------

    def attach(self, client: Client, *, resumed: bool = False) -> None:
        """From now on this is the session's client; the one before is told."""
        if self._client is not None:
            self._client.replace()
        self._client = client
        self._heard = self._loop.time()
        if resumed:
            self._splice.rejoin()
            self._again = {*self._flushes, *self._entry.log.flushes()}
        self._eased.set()

    def detach(self, client: Client, *, for_good: bool) -> None:
        """The client has lost its connection, or left because it wants no more, as all do that cannot
        resume."""
        if self._client is not client:
            return
        self._client, self._left = None, self._loop.time()
        self._eased.set()
        if (for_good or self._entry.guest) and not self._closed:
            self._abandoned = self._closed = True
            self._inbox.put_nowait(End())

    async def room(self) -> None:
        """Return once another message may be taken: at once unless the engine or the client is behind.

        Never waits for ever: replies have deadlines in the dispatcher, sending has one in the writer.
        """
        while not self._ending and (self._working or not self._inbox.empty() or self._crowded()):
            await self._ease()

    def eased(self) -> None:
        """The client has read something."""
        self._eased.set()

    def take(self, message: Audio | Flush | Alive | Hotwords | End) -> None:
        """Accept one message of the client, after `room`; raises `ProtocolError`. What came before over
        another connection is known and dropped."""
        match message:
            case Audio(data):
                if not (data := self._splice.take(data)) or (not self._closed and self._at_once(data)):
                    return
                message = Audio(data)
            case Flush(id) if id in self._again:
                self._again.discard(id)
                return
            case Alive():
                self._heard = self._loop.time()
                return
            case Hotwords(hotwords):
                self._meeting.expect(hotwords)
                return
            case End() if self._closed:
                return
        if self._closed:
            raise after_end(message)
        if isinstance(message, Flush):
            self._flushes.append(message.id)
        self._closed = isinstance(message, End)
        self._inbox.put_nowait(message)

    def fail(self, error: WireError) -> None:
        """End the session for a reason the client is told; the first reason counts, and none after `end`
        but the client's own fault."""
        if self._fault is not None or self._ended.is_set():
            return
        if self._ending and not isinstance(error, ProtocolError):
            return
        self._fault = error.bare()
        self._end()

    def rename(self, speaker: int, name: str) -> None:
        """From now on, and for everything said before, `speaker` is called `name`; empty: by its number
        again. Raises KeyError for a number that nobody has."""
        self._meeting.rename(speaker, name)
        self._pump()

    def stop(self) -> None:
        """The server drains: finish what was received, then end with `Restarting`."""
        self.fail(Restarting())

    def give_up(self) -> None:
        """Declare what is not decoded yet a gap, so that the receipt comes now."""
        self._end()
        self.decodes.give_up()
        self._pump()

    def let_go(self) -> None:
        """Another process goes on with the session: nothing more is heard, decoded or said here."""
        self._note_progress()
        self._gone = self._ending = self._closed = True
        self._entry.renamer = None
        self.decodes.drop()
        self._ended.set()
        self._eased.set()

    # -- its course ------------------------------------------------------------------------------

    async def run(self) -> None:
        """From `ready` until nothing more will be said; raises nothing but cancellation."""
        self._services.metrics.started.add()
        logger.info("session %(session)s started", {"session": short(self._entry.id)})
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self.decodes.begin(group)
                helpers = [group.create_task(self._work()), group.create_task(self._tick())]
                if self._ending:  # the server drained before this began
                    group.create_task(self._deadline())
                await self._ended.wait()
                for helper in helpers:
                    helper.cancel()
                if not self._gone:
                    self._conclude()
        except* Exception:
            # The one broad net: a bug must not take other sessions along, nor leave the client waiting.
            logger.exception("session %(session)s failed", {"session": short(self._entry.id)})
            self._fault = InternalFault(self._entry.id)
            self._conclude()
        finally:
            self._hearing.close()
            self.decodes.end()

    def _conclude(self) -> None:
        """After the receipt the error if there was one, and nothing more."""
        receipt = self._entry.log.receipt
        if isinstance(self._fault, Restarting) and receipt is not None:
            self._fault = Restarting(receipt.gap_samples / SAMPLE_RATE)
        outcome = Outcome(reason="client_left" if self._abandoned else "done")
        if self._fault is not None:
            self._entry.put(told(self._fault, 0))
            outcome = Outcome(self._fault.close, self._fault.code)
        self._services.metrics.closed.add(code=str(int(outcome.code)), reason=outcome.reason)
        audio_s = self.received / SAMPLE_RATE
        said = {"session": short(self._entry.id), "reason": outcome.reason, "audio_s": audio_s}
        logger.info("session %(session)s ended: %(reason)s, %(audio_s).1f s", said)
        self._hearing.conclude()
        self._entry.finish(outcome)

    async def _work(self) -> None:
        """Carry out what was accepted, in order."""
        while True:
            message = await self._inbox.get()
            self._working = True
            try:
                await self._carry_out(message)
            except WireError as error:
                self.fail(error)
            self._working = False
            self._eased.set()

    async def _carry_out(self, message: Audio | Flush | End) -> None:
        if self._ending:
            return
        match message:
            case Audio(data):
                await self._hear(self._hearing.feed(data))
            case Flush(id):
                self._meeting.receive_flush(id)
                self._pump()
            case End():
                await self._hear(self._hearing.drain())
                self._end()
            case _:
                assert_never(message)

    async def _hear(self, pieces: AsyncIterator[tuple[Frames, Voices]]) -> None:
        self._hearing.inside = True
        async for frames, voices in pieces:
            # While a thread judged the piece or there was no room, somebody may have ended the session.
            if self._ending:
                return
            self._take_in(frames, voices)
            await self._uncrowded()
        self._hearing.inside = False

    def _at_once(self, data: bytes) -> bool:
        """Hear a packet in the turn of who brought it, where nothing is before it: to the worker and back
        takes as long as hearing it."""
        if self._working or self._ending or self._group is None or not self._inbox.empty():
            return False
        if not self._hearing.small(data):
            return False
        self._hearing.inside = True
        try:
            self._take_in(*self._hearing.at_once(data))
            self._hearing.inside = False
        except WireError as error:
            self.fail(error)
        except Exception as bug:  # noqa: BLE001 - the session's, as in the worker, and no connection's
            self._group.create_task(_failing(bug))
        return True

    def _take_in(self, frames: Frames, voices: Voices) -> None:
        self._hearing.take_in(frames, voices)
        self._pump()
        self._hearing.check()

    async def _tick(self) -> None:
        known, limits = 0, self._limits
        while True:
            due = self._loop.time() + TICK_S
            await asyncio.sleep(TICK_S)
            dispatcher, now = self._services.dispatcher, self._loop.time()
            dispatcher.late(now - due)
            # While this process stood still nobody was heard who spoke, or came back.
            self._heard, self._left = self._heard + now - due, self._left + now - due
            self._meeting.stretch(dispatcher.stretch, brief=dispatcher.brief)
            self._note_progress()
            if self._client is None:
                if now - self._left >= limits.resume_s and not self._abandoned:
                    self.fail(Expired(limits.resume_s))
                continue
            # Only audio, or saying so, keeps a session alive, unless it is the client that waits.
            if self.received > known or self._crowded() or self._flushes:
                known, self._heard = self.received, now
            elif now - self._heard > limits.idle_timeout_s:
                self.fail(IdleClient(limits.idle_timeout_s, "audio"))
            self._client.acknowledge(self.received, self._entry.recorder.durable(self.received))

    def _note_progress(self) -> None:
        self._entry.recorder.progress(self._meeting.settled, self.received)
        if (encoder := self._services.encoder) is not None:
            self._entry.recorder.voices(encode(self._meeting.voices(), encoder.traits))

    def _end(self) -> None:
        """No more audio: the last words and the receipt follow. Again: nothing."""
        if self._ending:
            return
        self._ending = self._closed = True
        self._hearing.end()
        self._pump()
        if self._group is not None and not self._ended.is_set():
            self._group.create_task(self._deadline())

    async def _deadline(self) -> None:
        try:
            more = self.received / SAMPLE_RATE if self._services.batch else 0.0
            async with asyncio.timeout(self._limits.finish_s + more):
                await self._ended.wait()
        except TimeoutError:
            self.give_up()

    async def _uncrowded(self) -> None:
        while not self._ending and self._crowded():
            await self._ease()

    async def _ease(self) -> None:
        """Wait for a change."""
        if (reason := self._crowded()) and not self._paused:
            self._services.metrics.paused.add(reason=reason)
        self._paused = reason is not None
        self._eased.clear()
        await self._eased.wait()
        self._paused = self._crowded() is not None

    def _crowded(self) -> str | None:
        if self._client is not None and self._client.behind:
            return "client"
        # Without a decode running nothing would ever ease the backlog but more audio.
        if not self.decodes:
            return None
        if len(self._flushes) >= FLUSHES:
            return "flush"
        return "engine" if self._meeting.backlog > self._limits.max_backlog_s * SAMPLE_RATE else None

    def _pump(self) -> None:
        """Carry out what the session wants now."""
        if self._gone:
            return
        self.decodes.carry_out()
        events = self._meeting.events_to_send()
        for event in events:
            self._delays.observe(event, self._loop.time())
            self._entry.put(present(self._redactor.apply(event)))
            if isinstance(event, Flushed):
                self._flushes.remove(event.id)
            elif isinstance(event, Ended):
                self._entry.renamer = None  # nothing follows the receipt
                self._ended.set()
        if events:
            self._entry.recorder.progress(self._meeting.settled, self.received)
        self._eased.set()


async def _failing(bug: Exception) -> None:
    raise bug


def after_end(message: ClientMessage) -> ProtocolError:
    """The refusal of what comes when no more may come."""
    name = type(message).__name__.lower()
    return ProtocolError("after_end", f"{name} came after end: nothing may follow end")
