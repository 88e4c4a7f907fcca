"""What a client sends up: no more than may be, no slower than may be, and on the disk."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, cast

from starlette.datastructures import UploadFile
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

from streaming.denial import Refusal

LEAST_RATE = 4096
"""Bytes a second that an upload must bring on the whole, once its patience is over."""
LONGEST_S = 1800.0
"""No upload takes longer: it holds a place that others wait for."""
IN_MEMORY = 1 << 20
"""Bytes of a recording that are kept in memory; a larger one goes to the disk."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A recording that came whole."""

    file: BinaryIO
    size: int
    sha256: str


def bounded(request: Request, most: int, patience_s: float) -> Receive:
    """`receive` of a request whose body has at most `most` bytes, waits for none longer than `patience_s` and
    comes no slower than `LEAST_RATE` on the whole. Raises `Refusal`, as its `receive` does."""
    if _length(request) > most:
        raise _too_large(most)
    loop = asyncio.get_running_loop()
    began, taken = loop.time(), 0

    async def receive() -> Message:
        nonlocal taken
        try:
            async with asyncio.timeout(patience_s):
                message = await request.receive()
        except TimeoutError:
            raise Refusal(
                408, f"body: nothing came for {patience_s:g} s: send it at once", code="timeout"
            ) from None
        taken += len(message.get("body", b""))
        if taken > most:
            raise _too_large(most)
        passed = loop.time() - began
        slow = taken < (passed - 6 * patience_s) * LEAST_RATE or passed > LONGEST_S
        if slow and message.get("more_body"):
            raise Refusal(
                408,
                f"body: comes too slowly: send {LEAST_RATE} bytes a second or more, within {LONGEST_S:g} s",
                code="timeout",
            )
        return message

    return receive


@asynccontextmanager
async def body_of(request: Request, most: int, patience_s: float) -> AsyncIterator[Upload]:
    """The body, which is the recording itself; its file goes with the block. Raises `Refusal`."""
    digest = hashlib.sha256()
    spool = cast(BinaryIO, SpooledTemporaryFile(max_size=IN_MEMORY))  # noqa: SIM115 - closed by the upload
    upload = UploadFile(spool, size=0)
    try:
        try:
            async for piece in Request(request.scope, bounded(request, most, patience_s)).stream():
                digest.update(piece)
                await upload.write(piece)
        except ClientDisconnect:
            raise Refusal(400, "body: broke off: send all of it", code="bad_body") from None
        await upload.seek(0)
        yield Upload(spool, upload.size or 0, digest.hexdigest())
    finally:
        await upload.close()


def _length(request: Request) -> int:
    text = request.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _too_large(most: int) -> Refusal:
    return Refusal(
        413, f"file: is over {most} bytes (limits.max_file_bytes): send less", code="too_large", param="file"
    )
