"""One client's connection: reader and writer of one session, which may outlive it. All awaits on the client
live here and in the writer, each with a deadline.

How a session ends, whatever the reason: no more audio is taken, the last decodes finish, the receipt goes
out, then the error if there was one, then the close code. A connection that ends before leaves the session
waiting for its client to come back with another.
"""

from __future__ import annotations

import asyncio
import logging

from msgspec.structs import replace
from websockets.exceptions import ConnectionClosed, InvalidStatus

from streaming.access import tokens
from streaming.access.auth import Caller
from streaming.access.keys import Scope
from streaming.errors import InternalFault, Replaced, Restarting, ResumeRefused, SlowReader
from streaming.observe.hygiene import short
from streaming.sessions.attendance import attend
from streaming.sessions.beginning import begin
from streaming.sessions.live import Live, after_end
from streaming.sessions.ports import Peers
from streaming.sessions.registry import Entry
from streaming.sessions.services import Services
from streaming.settings import LimitSettings
from streaming.wire.codec import Codec
from streaming.wire.errors import ProtocolError, WireError, shown
from streaming.wire.messages import (
    Alive,
    Audio,
    ClientMessage,
    End,
    Flush,
    Hotwords,
    Name,
    Presence,
    Ready,
    Resume,
    Start,
)

from .greeting import Greeting, decoded
from .relay import Through, Unreachable, dial
from .writer import Channel, ChannelClosed, Writer, close, part

logger = logging.getLogger("seamscribe")

STREAM = "/v1/stream"


class Connection:
    """Serves one client from its first message to the close."""

    def __init__(
        self,
        channel: Channel,
        codec: Codec,
        services: Services,
        caller: Caller | None = None,
        guest: str | None = None,
        traceparent: str | None = None,
        peers: Peers | None = None,
    ) -> None:
        """`caller` is known since the handshake; None where the first message says who asks. `guest` is the
        id that the session of a client gets which has no way to come back to it; None: any, and it may.
        `traceparent` is the client's own trace, if it has one; `peers` are the processes that the session of
        one who comes back may be at."""
        self._channel = channel
        self._codec = codec
        self._services = services
        self._caller = caller
        self._guest = guest
        self._traceparent = traceparent
        self._peers = peers
        self._through: Through | None = None
        self._limits = services.limits
        self._greeting = Greeting(channel, codec, services.limits)

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
        """The server drains: a client without a session is told so."""
        self._greeting.stop()
        if self._through is not None:
            self._through.stop()

    async def _meet(self) -> None:
        try:
            first = await self._first()
            serving = await (self._start(first) if isinstance(first, Start) else self._resume(first))
        except ChannelClosed:
            return
        except WireError as error:
            refusal = error
        except Exception:
            # Like the net in `Live.run`: a bug is told to the client and logged, once.
            logger.exception("a client could not be met")
            refusal = InternalFault()
        else:
            with self._services.sessions.seat():
                await serving.run()
            return
        await self._refuse(refusal)

    async def _first(self) -> Start | Resume:
        """The client's first message; raises `WireError`, `ChannelClosed`."""
        message = await self._greeting.read("the start message")
        if isinstance(message, Start | Resume):
            return message
        raise ProtocolError(
            "start_expected",
            f"the first message is {_name(message)}, but start is due: send start before anything else, or"
            " resume",
            field="type",
        )

    async def _refuse(self, error: WireError) -> None:
        self._services.metrics.refused.add(reason=error.code)
        said = {"code": error.code, "reason": shown(error.message, 400)}
        logger.info("client refused: %(code)s: %(reason)s", said)
        await part(self._channel, self._codec, error, 0)

    async def _start(self, start: Start) -> Serving:
        """A new session; raises `WireError`."""
        services, token = self._services, tokens.issue()
        caller = await services.auth.admit(self._caller, start.token, Scope.SPEAK)
        lease = await services.quotas.lease(caller.key)
        entry, _ = begin(
            replace(start, token=None),
            services,
            lease,
            token=token,
            guest=self._guest,
            traceparent=self._traceparent,
        )
        assert entry.ready is not None
        writer = Writer(self._channel, self._codec, entry, self._limits)
        return Serving(self._channel, self._codec, services, entry, writer, entry.ready, token)

    async def _elsewhere(self, resume: Resume) -> Through | None:
        """The way to another living process that has the session; None where there is none: then this one is
        to go on with it. Raises `Restarting`."""
        address = None if self._peers is None else await self._peers.owner(resume.session)
        if address is None:
            return None
        try:
            far = await dial(address, f"{STREAM}?resume=", [self._codec.name])
            await far.send(self._codec.encode_client(resume))
        except InvalidStatus as error:
            logger.info("another process refuses: %(error)s", {"error": error})
            raise Restarting from None
        except (Unreachable, ConnectionClosed) as error:
            logger.warning("another process is taken for dead: %(error)s", {"error": error})
            return None
        self._through = Through(self._channel, far, self._limits.slow_reader_s)
        return self._through

    async def _resume(self, resume: Resume) -> Serving | Through:
        """A session that was there before; raises `WireError`."""
        if (through := await self._elsewhere(resume)) is not None:
            return through
        if (history := self._services.history) is not None:
            await history.revive(resume.session, resume.token, resume.next_sample, self._services)
        # From here on at once: see `Serving`.
        entry = self._services.sessions.resume(resume.session, resume.token)
        receipt = entry.log.receipt
        next = entry.live.next_sample if entry.live is not None else receipt.samples if receipt else 0
        if resume.next_sample > next and entry.live is not None:
            raise ResumeRefused(
                f"next_sample: audio from sample {next} on is due, and {resume.next_sample} is the first that"
                " can still be sent"
            )
        if entry.guest:
            raise ResumeRefused(
                "a session of another protocol, or of audio in a container, is not gone on with"
            )
        if resume.last_seq in entry.unheard:
            raise ResumeRefused("last_seq: what was said last never reached this server's disk")
        assert entry.ready is not None, "whoever has its token was told it in ready"
        self._services.metrics.resumed.add()
        logger.info("session %(session)s resumed", {"session": short(entry.id)})
        writer = Writer(self._channel, self._codec, entry, self._limits, resume.last_seq)
        ready = replace(entry.ready, seq=writer.at, resumed=True, next_sample=next)
        return Serving(self._channel, self._codec, self._services, entry, writer, ready, resume.token)


class Serving:
    """A connection that has a session: the `Client` of its `Live`. Made in the moment in which the session's
    position was read, so that no older connection can move it any more."""

    def __init__(
        self,
        channel: Channel,
        codec: Codec,
        services: Services,
        entry: Entry,
        writer: Writer,
        ready: Ready,
        token: str,
    ) -> None:
        self._channel = channel
        self._codec = codec
        self._services = services
        self._entry = entry
        self._writer = writer
        self._ready = replace(ready, token=token, read_token=tokens.read_token(token))
        self._over = asyncio.Event()
        self._fault: WireError | None = None
        self._for_good = self._mute = False
        self._reason = "lost"
        if entry.live is not None:
            entry.live.attach(self, resumed=ready.resumed)

    @property
    def behind(self) -> bool:
        return self._writer.behind and not self._mute

    def acknowledge(self, sample: int, durable: int) -> None:
        self._writer.acknowledge(sample, durable)

    def replace(self) -> None:
        """A newer connection has the session."""
        self._part(Replaced())

    async def run(self) -> None:
        """Until the session has said everything, or the connection ends before; the socket is closed then."""
        live = self._entry.live
        try:
            async with asyncio.TaskGroup() as group:
                helpers = [group.create_task(self._read(live)), group.create_task(self._write(live))]
                await self._over.wait()
                for helper in helpers:
                    helper.cancel()
        except* Exception:
            # A bug of one connection leaves the session to the next.
            logger.exception("a connection of session %(session)s failed", {"session": short(self._entry.id)})
            self._part(InternalFault(self._entry.id))
        if live is not None:
            live.detach(self, for_good=self._for_good)
        if self._entry.live is not None:
            self._services.metrics.parted.add(reason=self._reason)
            parted = {"session": short(self._entry.id), "reason": self._reason}
            logger.info("session %(session)s lost its connection: %(reason)s", parted)
        if self._fault is not None:
            await part(self._channel, self._codec, self._fault, self._writer.at)

    def _part(self, error: WireError) -> None:
        self._fault, self._reason = error, error.code
        self._over.set()

    async def _read(self, live: Live | None) -> None:
        """Take in messages while there is room; after a fault read on and drop, so that the client is
        never blocked from reading why."""
        said_end = False
        try:
            while True:
                if live is not None:
                    await live.room()
                try:
                    data = await self._channel.receive()
                    if live is None or self._deaf(live):
                        continue
                    message = decoded(data, self._codec, self._limits.max_packet_bytes)
                    self._take(live, message, said_end=said_end)
                    said_end = said_end or isinstance(message, End)
                except WireError as error:
                    if live is not None and not self._deaf(live):
                        live.fail(error)
        except ChannelClosed as closed:
            self._for_good = closed.for_good
            if self._reason == "lost" and closed.for_good:
                self._reason = "left"
            self._over.set()

    def _deaf(self, live: Live) -> bool:
        """Whether what the client says counts no more."""
        return live.failed or self._over.is_set()

    def _take(self, live: Live, message: ClientMessage, *, said_end: bool) -> None:
        if said_end:
            raise after_end(message)
        if isinstance(message, Audio | Flush | Alive | Hotwords | End):
            live.take(message)
        elif isinstance(message, Name):
            _rename(live, message)
        elif isinstance(message, Presence):
            attend(self._entry, message, live.next_sample)
        else:
            raise ProtocolError(
                "started", f"{_name(message)} came in a session: open a new connection for it", field="type"
            )

    async def _write(self, live: Live | None) -> None:
        """Send until nothing more will be said, then close. To whom nothing can be said any more may have
        said much that was not read yet: reading comes to its end."""
        try:
            await self._entry.recorder.on_disk(self._ready.seq)
            await self._writer.send(self._ready)
            await self._writer.run(_nothing if live is None else live.eased)
            await close(self._channel, self._entry)
        except SlowReader:
            self._reason = "slow_reader"
            self._channel.abort()
        except ChannelClosed:
            pass
        if live is None or self._entry.outcome is not None:
            self._over.set()
            return
        self._mute = True
        live.eased()

    @property
    def _limits(self) -> LimitSettings:
        return self._services.limits


def _rename(live: Live, message: Name) -> None:
    try:
        live.rename(message.speaker, message.name)
    except KeyError:
        raise ProtocolError(
            "unknown_speaker",
            f"speaker: nobody here has the number {message.speaker}: use one that segments carry, of a track"
            " its index and one",
            field="speaker",
        ) from None


def _name(message: ClientMessage) -> str:
    return type(message).__name__.lower()


def _nothing() -> None:
    """Nobody waits for room in a session that has ended."""
