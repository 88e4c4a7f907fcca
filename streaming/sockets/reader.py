"""Whoever reads a session without speaking in it: overlays, captions, a second screen."""

from __future__ import annotations

import logging

from msgspec.structs import replace

from streaming.access.auth import Caller
from streaming.access.keys import Scope
from streaming.background import first_of
from streaming.errors import InternalFault, NothingLive, ReadRefused, Restarting, SlowReader, TooManyReaders
from streaming.observe.hygiene import short
from streaming.sessions.registry import Entry
from streaming.sessions.services import Services
from streaming.wire.codec import Codec
from streaming.wire.errors import ProtocolError, WireError, shown
from streaming.wire.messages import Read

from .greeting import Greeting
from .writer import Channel, ChannelClosed, Writer, close, part

logger = logging.getLogger("seamscribe")


LATEST = "latest"
"""In place of a session's id: the one that began last, of those that live, for who may read any."""


class Reader:
    """Serves one reader of session `id`: what there is, then what comes. `read` is None where the first
    message brings it. It costs the speaker nothing: the slower it reads, the more states it never sees."""

    def __init__(
        self,
        channel: Channel,
        codec: Codec,
        services: Services,
        id: str,
        read: Read | None,
        caller: Caller | None = None,
    ) -> None:
        """`caller` is known since the handshake, if it is."""
        self._channel = channel
        self._codec = codec
        self._services = services
        self._id = id
        self._read = read
        self._caller = caller
        self._greeting = Greeting(channel, codec, services.limits)

    async def run(self) -> None:
        """Returns when the socket is closed; raises nothing but cancellation."""
        sessions = self._services.sessions
        try:
            sessions.join(self)
        except Restarting as error:
            await part(self._channel, self._codec, error, 0)
            return
        try:
            read = self._read or await self._first()
            entry = await self._entry(read)
            limits = self._services.limits
            if entry.readers >= limits.max_readers:
                raise TooManyReaders(entry.readers, round(limits.retry_after_s * 1000))
            writer = Writer(self._channel, self._codec, entry, limits, read.after)
            with sessions.seat():
                await self._serve(entry, writer)
        except ChannelClosed:
            return
        except SlowReader:
            self._channel.abort()
        except WireError as error:
            said = {"code": error.code, "reason": shown(error.message, 400)}
            logger.info("reader refused: %(code)s: %(reason)s", said)
            await part(self._channel, self._codec, error, 0)
        except Exception:
            logger.exception("a reader failed")
            await part(self._channel, self._codec, InternalFault(), 0)
        finally:
            sessions.leave(self)

    def stop(self) -> None:
        """The server drains: the session it reads ends, and so does this."""
        self._greeting.stop()

    async def _entry(self, read: Read) -> Entry:
        """The session, for a token of its own, or for who may read others too; raises `WireError`."""
        services, sessions = self._services, self._services.sessions
        caller = self._caller
        if self._id == LATEST:
            caller = caller or await services.auth.admit(None, read.token, Scope.READ, LATEST)
            if not caller.may(Scope.READ, LATEST):
                raise ReadRefused
            if (newest := sessions.newest()) is None:
                raise NothingLive(round(services.limits.retry_after_s * 1000))
            return newest
        if caller is None:
            if (history := services.history) is not None:
                await history.revive(self._id, read.token, 0, services)
            try:
                return sessions.read(self._id, read.token)
            except ReadRefused:
                if services.auth.open:
                    raise
            caller = await services.auth.admit(None, read.token, Scope.READ, self._id)
        entry = sessions.find(self._id)
        if entry is None or not caller.may(Scope.READ, self._id):
            raise ReadRefused
        return entry

    async def _first(self) -> Read:
        message = await self._greeting.read("read")
        if isinstance(message, Read):
            return message
        raise ProtocolError(
            "read_expected", "type: read is due: send it first, or ?token= in the address", field="type"
        )

    async def _serve(self, entry: Entry, writer: Writer) -> None:
        self._services.metrics.readers.add()
        logger.info("session %(session)s has a reader", {"session": short(entry.id)})
        entry.readers += 1
        try:
            await first_of(self._watch(), self._write(entry, writer))
        finally:
            entry.readers -= 1

    async def _write(self, entry: Entry, writer: Writer) -> None:
        if entry.ready is not None:
            await writer.send(replace(entry.ready, seq=writer.at))
        await writer.run(lambda: None)
        await close(self._channel, entry)

    async def _watch(self) -> None:
        """Notice that the reader leaves."""
        await self._channel.receive()
        raise ProtocolError("read_only", "a reader says nothing after read: open /v1/stream to speak")
