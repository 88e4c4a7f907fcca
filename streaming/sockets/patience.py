"""Answers that go on for as long as somebody takes them."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Send


def patient(send: Send, seconds: float) -> Send:
    """`send` for a client that takes a part within so many seconds; raises TimeoutError where it does not. An
    application that ends then has its connection cut, so that nobody takes what came for the whole."""

    async def sent(message: Message) -> None:
        async with asyncio.timeout(seconds):
            await send(message)

    return sent
