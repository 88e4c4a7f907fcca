"""One client: reader, writer and ticker in a task group around one live session. All awaits on the client
live here, each with a deadline.

How a stream ends, whatever the reason: no more audio is taken, the last decodes finish, the receipt goes
out, then the error if there was one, then the close code. Where the client is gone the same happens for
the record, which can still be fetched over HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol, assert_never

from msgspec import UNSET

from .errors import IdleClient, InternalFault, Restarting, SlowReader
from .live import Live, Services
from .outbox import Outbox
from .sessions import Entry
from .wire.codec import Codec, too_big
from .wire.errors import CloseCode, ProtocolError, WireError, shown
from .wire.messages import (
    CLOCK_RATE,
    VERSION,
    Ack,
    Audio,
    ClientMessage,
    End,
    Error,
    Flush,
    Limits,
    Read,
    Ready,
    Resume,
    Start,
)

logger = logging.getLogger("seamscribe")

TICK_S = 0.5
"""Acknowledgements, load and idleness are looked at this often."""

CLOSE_S = 5.0
"""How long the last message and the close may take."""


class ChannelClosed(Exception):
    """The client is gone."""


class Channel(Protocol):
    """A message socket."""

    async def receive(self) -> str | bytes:
        """The next message; raises `ChannelClosed`. Cancelling loses nothing."""
        ...

    async def send(self, data: str | bytes) -> None:
        """Returns when there is room for more; raises `ChannelClosed`."""
        ...

    async def close(self, code: int, reason: str) -> None: ...

    def abort(self) -> None:
        """Cut the connection without waiting for the client to read."""
        ...


class Connection:
    """Serves one client from its first message to the close."""

    def __init__(self, channel: Channel, codec: Codec, services: Services) -> None:
        self._channel = channel
        self._codec = codec
        self._services = services
        self._limits = services.limits
        self._loop = asyncio.get_running_loop()
        self._patience: asyncio.Timeout | None = None
        self._outbox = Outbox(services.limits.outbox)
        self._live: Live | None = None
        self._fault: WireError | None = None
        self._stopped = False
        self._gone = False

    async def run(self) -> None:
        """Returns when the socket is closed; raises nothing but cancellation."""
        try:
            self._services.sessions.join(self)
        except Restarting as error:
            await self._refuse(error)
            return
        try:
            await self._meet()
        finally:
            self._services.sessions.leave(self)

    def stop(self) -> None:
        """The server drains: finish what was received, then close with `Restarting`."""
        self._stopped = True
        if self._live is not None:
            self._fail(Restarting())
        elif self._patience is not None:
            self._patience.reschedule(self._loop.time())

    def give_up(self) -> None:
        """The drain's deadline came: declare what is not decoded a gap, close."""
        if self._live is not None:
            self._live.give_up()

    # -- before the session ----------------------------------------------------------------------

    async def _meet(self) -> None:
        entry: Entry | None = None
        try:
            start = await self._started()
            entry = self._services.sessions.open()
            live = Live(start, entry, self._outbox, self._services)
            self._outbox.put(self._ready(start, entry, live))
        except ChannelClosed:
            return
        except WireError as error:
            refusal = error
        except Exception:
            # Like the net in `_serve`: a bug is told to the client and logged, once.
            logger.exception("a client could not be met")
            refusal = InternalFault()
        else:
            try:
                await self._serve(live, entry)
            finally:
                self._services.sessions.close(entry)
            return
        if entry is not None:
            self._services.sessions.discard(entry)
        await self._refuse(refusal)

    async def _started(self) -> Start:
        """The client's first message; raises `WireError`, `ChannelClosed`."""
        seconds = self._limits.start_timeout_s
        try:
            async with asyncio.timeout(seconds) as self._patience:
                data = await self._channel.receive()
        except TimeoutError:
            raise Restarting if self._stopped else IdleClient(seconds, "the start message") from None
        finally:
            self._patience = None
        message = self._decoded(data)
        if isinstance(message, Start):
            return message
        raise ProtocolError(
            "start_expected",
            f"the first message is {_name(message)}, but start is due: send start before anything else",
            field="type",
        )

    async def _refuse(self, error: WireError) -> None:
        self._services.metrics.refused.add(reason=error.code)
        logger.info("client refused: %s: %s", error.code, shown(error.message, 400))
        await self._part(error)

    async def _part(self, error: WireError) -> None:
        """Send the error as the last message and close."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._channel.send(self._codec.encode(_told(error, self._outbox.seq + 1)))
                await self._channel.close(error.close, error.code)
        except TimeoutError:
            self._channel.abort()
        except ChannelClosed:
            pass

    def _ready(self, start: Start, entry: Entry, live: Live) -> Ready:
        capabilities, limits = self._services.dispatcher.capabilities, self._limits
        return Ready(
            seq=0,
            session=entry.id,
            version=VERSION,
            engine=capabilities.engine,
            model=capabilities.model,
            audio=start.audio,
            limits=Limits(
                max_packet_bytes=limits.max_packet_bytes,
                max_ahead_ms=round(limits.max_backlog_s * 1000),
                max_session_ms=round(limits.max_session_s * 1000),
                idle_timeout_ms=round(limits.idle_timeout_s * 1000),
            ),
            max_delay_ms=round(live.settings.max_delay_s * 1000),
            pause_ms=round(live.settings.pause_s * 1000),
            language=start.language,
        )

    # -- the session -----------------------------------------------------------------------------

    async def _serve(self, live: Live, entry: Entry) -> None:
        self._services.metrics.started.add()
        logger.info("session %s started", _short(entry))
        try:
            async with asyncio.TaskGroup() as group:
                live.begin(group)
                self._live = live
                if self._stopped:
                    self.stop()
                helpers = [
                    group.create_task(self._read(live)),
                    group.create_task(self._tick(live)),
                ]
                group.create_task(self._conclude(live, entry))
                group.create_task(self._write(live, helpers))
        except* Exception:
            # The one broad net: a bug must not take other sessions along, nor leave the client waiting.
            logger.exception("session %s failed", _short(entry))
            self._fault = InternalFault(entry.id)
        self._live = None
        if isinstance(self._fault, InternalFault) and not self._gone:
            await self._part(self._fault)
        code = self._fault.close if self._fault else CloseCode.NORMAL
        reason = self._fault.code if self._fault else ("client_left" if self._gone else "done")
        self._services.metrics.closed.add(code=str(int(code)), reason=reason)
        logger.info("session %s ended: %s, %.1f s", _short(entry), reason, live.received / CLOCK_RATE)

    async def _read(self, live: Live) -> None:
        """Take in messages while there is room; after a fault read on and drop, so that the client is
        never blocked from reading why."""
        try:
            while True:
                await live.room()
                data = await self._channel.receive()
                if self._fault is not None:
                    continue
                try:
                    await self._take(live, self._decoded(data))
                except WireError as error:
                    self._fail(error)
        except ChannelClosed:
            self._lose(live)

    async def _take(self, live: Live, message: ClientMessage) -> None:
        if live.ending:
            raise ProtocolError("after_end", f"{_name(message)} came after end: nothing may follow end")
        match message:
            case Audio(data):
                await live.feed(data)
            case Flush(id):
                live.flush(id)
            case End():
                live.end()
            case Start() | Resume() | Read():
                raise ProtocolError(
                    "started", f"{_name(message)} came in a session: open a new connection for it"
                )
            case _:
                assert_never(message)

    async def _write(self, live: Live, helpers: list[asyncio.Task[None]]) -> None:
        """Send until the outbox is finished, then close; without the writer nobody else is needed."""
        try:
            while (message := await self._outbox.take()) is not None:
                async with asyncio.timeout(self._limits.slow_reader_s):
                    await self._channel.send(self._codec.encode(message))
                live.eased()
            if not self._gone:
                async with asyncio.timeout(CLOSE_S):
                    code, reason = (
                        (self._fault.close, self._fault.code) if self._fault else (CloseCode.NORMAL, "done")
                    )
                    await self._channel.close(code, reason)
        except TimeoutError:
            self._fault = self._fault or SlowReader(self._limits.slow_reader_s)
            self._channel.abort()
            self._lose(live)
        except ChannelClosed:
            self._lose(live)
        finally:
            for helper in helpers:
                helper.cancel()

    async def _tick(self, live: Live) -> None:
        acknowledged, heard = 0, self._loop.time()
        while True:
            await asyncio.sleep(TICK_S)
            live.stretch(self._services.dispatcher.stretch)
            # Only audio keeps a session alive, unless it is the client that waits.
            if live.received > acknowledged or live.paused or live.flushing:
                heard = self._loop.time()
            elif self._loop.time() - heard > self._limits.idle_timeout_s:
                self._fail(IdleClient(self._limits.idle_timeout_s, "audio"))
            # Nothing but an error comes after the receipt.
            if live.received > acknowledged and not live.ended.is_set():
                acknowledged = live.received
                self._outbox.put(Ack(0, acknowledged))

    async def _conclude(self, live: Live, entry: Entry) -> None:
        """Once the receipt is out, the error if there was one, and nothing more."""
        await live.ended.wait()
        receipt = entry.record.receipt
        if isinstance(self._fault, Restarting) and receipt is not None:
            self._fault = Restarting(receipt.gap_samples / CLOCK_RATE)
        if self._fault is not None:
            self._outbox.put(_told(self._fault, 0))
        self._outbox.finish()

    def _decoded(self, data: str | bytes) -> ClientMessage:
        # Characters are at most as many as bytes: a cheap bound that needs no encoding.
        if len(data) > self._limits.max_packet_bytes:
            raise too_big(len(data), self._limits.max_packet_bytes)
        return self._codec.decode(data)

    def _fail(self, error: WireError) -> None:
        """End the session for a reason the client is told; the first reason counts, and none after `end`
        but the client's own fault."""
        live = self._live
        if live is None or self._fault is not None or live.ended.is_set():
            return
        if live.ending and not isinstance(error, ProtocolError):
            return
        self._fault = error
        live.end()

    def _lose(self, live: Live) -> None:
        """The client is gone: finish for the record."""
        self._gone = True
        self._outbox.discard()
        live.end()


def _told(error: WireError, seq: int) -> Error:
    return Error(
        seq,
        error.code,
        error.message,
        UNSET if error.field is None else error.field,
        UNSET if error.retry_after_ms is None else error.retry_after_ms,
    )


def _name(message: ClientMessage) -> str:
    return type(message).__name__.lower()


def _short(entry: Entry) -> str:
    """Enough of the id to find it in a log; whoever knows the whole may read the transcript."""
    return entry.id[:8]
