"""A client in virtual time that loses its connection again and again, and goes on as the protocol says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from clients.captions import Captions
from streaming.wire.codec import JsonCodec
from streaming.wire.messages import Ready
from tests.support.world import World

CODEC = JsonCodec()


class Comeback:
    """One session over several connections. Audio is `data`, `width` bytes a sample of all channels."""

    def __init__(self, world: World, start: dict[str, Any], data: bytes, width: int, rate: int) -> None:
        self._world = world
        self._data = data
        self._width = width
        self._rate = rate
        self._start = start
        self._read = 0
        self.captions = Captions()
        self.sent = 0
        """Bytes."""
        self.channel = world.client()

    async def begin(self) -> Ready:
        self.channel.say({"type": "start", **self._start})
        return await self._met()

    async def _met(self) -> Ready:
        while not self.channel.sent:  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.001)
        self._read = 0
        self.hear()
        ready = CODEC.decode_server(json.dumps(self.channel.sent[0]))
        assert isinstance(ready, Ready), ready
        return ready

    def hear(self, lost: int = 0) -> None:
        """Read what came, but for the last `lost` messages."""
        whole = max(self._read, len(self.channel.sent) - lost)
        for message in self.channel.sent[self._read : whole]:
            self.captions.receive(CODEC.decode_server(json.dumps(message)))
        self._read = whole

    async def speak(self, size: int) -> None:
        """So many bytes more, as long as they last."""
        piece = self._data[self.sent : self.sent + size]
        self.channel.say(piece)
        self.sent += len(piece)
        await asyncio.sleep(len(piece) / self._width / self._rate)

    async def come_back(self, *, away_s: float = 0.0, lost: int = 0, cut: bool = True) -> Ready:
        """Lose the connection, and the last messages on their way here with it; resume after `away_s`.
        Without `cut` the server does not know yet that the old one is dead."""
        self.hear(lost)
        if cut:
            self.channel.cut()
        await asyncio.sleep(away_s)
        assert self.captions.ready is not None
        session, token = self.captions.ready.session, self.captions.ready.token
        self.channel = self._world.client()
        self.channel.say(
            {"type": "resume", "session": session, "token": token, "last_seq": self.captions.seq}
        )
        ready = await self._met()
        self.sent = -(-ready.next_sample * self._rate // 16_000) * self._width
        return ready

    async def end(self) -> None:
        """The rest, and what follows to the last message."""
        while self.sent < len(self._data):
            await self.speak(3200)
        self.channel.say({"type": "end"})
        while self.channel.closed is None:  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.1)
        self.hear()
