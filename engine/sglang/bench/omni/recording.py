"""A long recording over our HTTP route: what is sent, and whether all of it came back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from engine.sglang.http1 import Endpoint, HttpError
from engine.sglang.payload import RATE, as_wav

from .fixed import QUIET, SLOT

_RECORDING_S = 420.0
"""A recording is given up after so long."""
_SHOWN = 20
"""Words that are told where there are more that are missing."""


async def record(seconds: float, url: str, audio: Path) -> dict[str, Any] | None:
    """A recording over HTTP with its progress; None where none is wanted."""
    if not seconds:
        return None
    pcm = spoken(seconds, audio)
    body = _form(as_wav(pcm))
    endpoint, began, events, pending = Endpoint(url), time.monotonic(), list[str](), b""
    exchange = endpoint.exchange("POST", "/v1/audio/transcriptions", body, "multipart/form-data; boundary=x")
    text, status = "", 0
    try:
        async with asyncio.timeout(_RECORDING_S), contextlib.aclosing(exchange) as pieces:
            async for answered, piece in pieces:
                status, pending = answered, pending + piece
                *whole, pending = pending.split(b"\n\n")
                for event in whole:
                    said = json.loads(event.removeprefix(b"data: "))
                    events.append(said.get("type", "error"))
                    text = said.get("text", text) if said.get("type") == "transcript.text.done" else text
                    if "error" in said:
                        text = str(said["error"])[:200]
    except (HttpError, TimeoutError, ValueError) as error:
        text = repr(error)[:200]
    endpoint.close()
    took = time.monotonic() - began
    kinds = {kind: events.count(kind) for kind in set(events)}
    told = {"status": status, "took_s": took, "rtf": took / seconds, "events": kinds}
    return {"seconds": seconds, **told, **compared(text, pcm), "end": text[-200:]}


def spoken(seconds: float, folder: Path) -> bytes:
    """16-bit samples of the packed utterances, again and again, half a second apart."""
    pieces, left = list[bytes](), round(2 * RATE * seconds)
    files = sorted(folder.rglob("*.pcm"))
    while left > 0:
        for file in files:
            data = file.read_bytes() + bytes(RATE)
            pieces.append(data[:left])
            left -= len(pieces[-1])
            if left <= 0:
                break
    return b"".join(pieces)


def _form(wav: bytes) -> bytes:
    fields = {"model": "any", "stream": "true", "response_format": "json"}
    parts = [
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    return b"".join([*parts, head, wav, b"\r\n--x--\r\n"])


def compared(text: str, pcm: bytes) -> dict[str, Any]:
    """The words of `text` beside those that `fixed.py` makes of such audio: one a loud half second."""
    got, due = text.split(), [f"w{slot}" for slot in loud(pcm)]
    seen = set(got)
    missing = [word for word in due if word not in seen]
    twice = len(got) - len(seen)
    return {"words": len(got), "due": len(due), "missing": len(missing), "twice": twice} | (
        {"first_missing": missing[:_SHOWN]} if missing else {}
    )


def loud(pcm: bytes) -> list[int]:
    """Half seconds of 16-bit samples that hold a word."""
    samples = np.frombuffer(pcm, "<i2").astype(np.float32) / 32768
    whole = samples[: len(samples) // SLOT * SLOT].reshape(-1, SLOT)
    return [int(slot) for slot in np.flatnonzero(np.abs(whole).mean(axis=1) > QUIET)]
