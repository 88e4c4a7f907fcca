"""SGLang as it comes: live audio in windows over its HTTP transcription, as anybody may use that."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from clients.audio import BYTES_PER_SECOND
from clients.bench.load import Script
from clients.launch import answers, free_port
from engine.sglang.flags import as_arguments
from engine.sglang.http1 import Endpoint, HttpError
from engine.sglang.payload import as_wav

from .judge import Heard
from .servers import LAST_WORDS_S, child, paced

ROUTE = "/v1/audio/transcriptions"
FLAGS = {
    "device": "cpu",
    "dtype": "float32",
    "attention_backend": "torch_native",
    "disable_overlap_schedule": True,
    # On a CPU the default is computed from GPU numbers and comes out negative.
    "mem_fraction_static": 0.3,
    "max_total_tokens": 20_000,
    "max_prefill_tokens": 16_384,
    # An encoder's block may not be cut, nor does it ever repeat.
    "chunked_prefill_size": -1,
    "disable_radix_cache": True,
    # Its warm-up sends text only, which these models do not take.
    "skip_server_warmup": True,
    "sleep_on_idle": True,
    "log_level": "warning",
}
"""What it needs to serve such a model on a CPU; nothing of ours is loaded into it."""


@dataclass(frozen=True, slots=True)
class Sglang:
    """Every `window_s` of audio is one request, sent when it is full. Its words are committed when its
    answer has come, and all before it."""

    python: Path
    folder: Path
    """Weights as SGLang reads them."""
    language: str
    window_s: float

    @property
    def name(self) -> str:
        return f"SGLang, windows of {self.window_s:g} s"

    @asynccontextmanager
    async def running(self, streams: int) -> AsyncIterator[tuple[str, int]]:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        flags = as_arguments({"model_path": self.folder, "port": port, **FLAGS})
        command = [str(self.python), "-m", "sglang.launch_server", *flags]
        # Two threads that spin for each other on a shared CPU are ten times slower than one.
        alone = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        async with child(command, partial(answers, f"{url}/health"), alone) as pid:
            yield url, pid

    async def speak(self, url: str, said: Script) -> Heard:
        heard, texts, loop = Heard(), list[str](), asyncio.get_running_loop()
        endpoint, zero, size = Endpoint(url), loop.time(), round(self.window_s * BYTES_PER_SECOND / 2) * 2

        async def ask(pcm: bytes, before: asyncio.Task[None] | None) -> None:
            text = await asyncio.wait_for(transcribe(endpoint, pcm, self.language), LAST_WORDS_S)
            if before is not None:
                await before
            texts.append(text)
            heard.tell(" ".join(texts), "", loop.time() - zero)

        try:
            async with asyncio.TaskGroup() as group:
                window, last = bytearray(), None
                async for packet in paced(said, heard, zero):
                    window += packet
                    if len(window) >= size:
                        last = group.create_task(ask(bytes(window), last))
                        window.clear()
                if window:
                    group.create_task(ask(bytes(window), last))
        except ExceptionGroup as error:
            heard.faults += [f"{type(one).__name__}: {one}" for one in error.exceptions]
        finally:
            endpoint.close()
        return heard


async def transcribe(endpoint: Endpoint, pcm: bytes, language: str) -> str:
    """The text of 16-bit mono samples at 16 kHz; raises `HttpError`."""
    body, media = form({"model": "any", "language": language, "response_format": "json"}, as_wav(pcm))
    answer, status = bytearray(), 0
    async for status, piece in endpoint.exchange("POST", ROUTE, body, media):  # noqa: B007
        answer += piece
    if status != 200:
        raise HttpError(f"HTTP {status}: {answer[:200].decode('utf-8', 'replace')}", sent=True)
    return str(json.loads(answer)["text"])


def form(fields: dict[str, str], wav: bytes) -> tuple[bytes, str]:
    """A multipart form with a file, and its media type."""
    mark = "--seamscribe-part"
    parts = [
        f'--{mark}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    head = (
        f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="window.wav"\r\n'
        "Content-Type: audio/wav\r\n\r\n"
    ).encode()
    end = f"\r\n--{mark}--\r\n".encode()
    return b"".join((*parts, head, wav, end)), f"multipart/form-data; boundary={mark}"
