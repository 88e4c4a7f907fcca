"""What a connection waits for first: one message, which has so long to come."""

from __future__ import annotations

import asyncio

from streaming.errors import IdleClient, Restarting
from streaming.settings import LimitSettings
from streaming.wire.codec import Codec, too_big
from streaming.wire.messages import ClientMessage

from .writer import Channel


class Greeting:
    """The first message of one connection."""

    def __init__(self, channel: Channel, codec: Codec, limits: LimitSettings) -> None:
        self._channel = channel
        self._codec = codec
        self._limits = limits
        self._patience: asyncio.Timeout | None = None
        self._stopped = False

    async def read(self, due: str) -> ClientMessage:
        """It, whatever it is, where `due` was asked for. Raises `WireError`, `ChannelClosed`."""
        seconds = self._limits.start_timeout_s
        try:
            async with asyncio.timeout(seconds) as self._patience:
                data = await self._channel.receive()
        except TimeoutError:
            raise Restarting if self._stopped else IdleClient(seconds, due) from None
        finally:
            self._patience = None
        return decoded(data, self._codec, self._limits.max_packet_bytes)

    def stop(self) -> None:
        """The server drains: who has not said it is told so."""
        self._stopped = True
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())


def decoded(data: str | bytes, codec: Codec, most: int) -> ClientMessage:
    """One message of a client, of `most` bytes; raises `ProtocolError`."""
    # Characters are at most as many as bytes: a cheap bound that needs no encoding.
    if len(data) > most:
        raise too_big(len(data), most)
    return codec.decode(data)
