"""What is left of a request that was refused before it had come whole. A client that is still sending would
not read the answer but see its connection reset."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive

DRAIN_S = 10.0


class Body:
    """A request's `receive` that knows whether there is more to come."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._done = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self._done = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def drain(self) -> None:
        """Read the rest and forget it, for `DRAIN_S` at most."""
        try:
            async with asyncio.timeout(DRAIN_S):
                while not self._done:
                    await self()
        except TimeoutError:
            pass
