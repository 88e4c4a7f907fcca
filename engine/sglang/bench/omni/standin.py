"""A server that takes SGLang-Omni's requests and has no model: for tests, and to try scripts without a GPU.

    python -m engine.sglang.bench.omni.standin --port 32000 --rate 200

Its shapes are those of SGLang-Omni 0.1.3: `/generate` answers once and sends the metadata back,
`/v1/audio/transcriptions` streams and stops when its client leaves. An output is what `say` makes of the
audio's seconds, a word a token, cut at the budget; `rate` tokens a second. No figure of it is an engine's.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import json
import wave
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

_AT_ONCE = 8
"""Words of a delta."""


def marked(seconds: float) -> list[str]:
    """A speaker a five seconds, two words a second, as a model writes that tells speakers apart."""
    words: list[str] = []
    for number, start in enumerate(range(0, max(1, round(seconds)), 5)):
        end = min(start + 5.0, seconds)
        said = [f" w{start + i // 2}" for i in range(max(1, round(2 * (end - start))))]
        words += [f"[{start:.2f}][S{number % 2 + 1:02d}]", *said, f"[{end:.2f}]"]
    return words


@dataclass(slots=True, eq=False)
class StandIn:
    """What it was asked, and what became of it."""

    say: Callable[[float], list[str]] = marked
    rate: float = 0.0
    """Tokens a second; 0: at once."""
    ignore_end: bool = False
    """Say it again and again up to the budget, as random weights do."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    """Each request's fields, its audio as `seconds`, its route as `path`."""
    left: int = 0
    """Streams whose client left before their end."""

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/health", self._health),
                Route("/generate", self._generate, methods=["POST"]),
                Route("/v1/audio/transcriptions", self._transcribe, methods=["POST"]),
                Route("/start_request_profile", self._health, methods=["POST"]),
                Route("/stop_request_profile", self._health, methods=["POST"]),
            ]
        )

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "healthy", "running": True})

    async def _generate(self, request: Request) -> Response:
        body = await request.json()
        sampling, metadata = body["sampling_params"], body["metadata"]
        if body.get("stream"):
            return JSONResponse({"detail": "stream=true is not supported by /generate yet"}, 400)
        wav = base64.b64decode(metadata["audio_data"].partition(",")[2])
        self.asked.append(
            {"path": "/generate", "seconds": seconds_of(wav), "prompt": body["prompt"], **sampling}
        )
        words, finish = self._output(seconds_of(wav), sampling["max_new_tokens"])
        await self._decode(len(words))
        reason = {"type": finish, "length": len(words) if finish == "length" else None}
        meta = {"finish_reason": reason, "prompt_tokens": positions(seconds_of(wav))}
        meta |= {"completion_tokens": len(words), "request_metadata": metadata}
        return JSONResponse({"text": "".join(words), "meta_info": meta})

    async def _transcribe(self, request: Request) -> Response:
        async with request.form(max_part_size=1 << 20) as form:
            fields: dict[str, Any] = {name: value for name, value in form.items() if isinstance(value, str)}
            wav = await form["file"].read()  # type: ignore[union-attr]
        self.asked.append({"path": "/v1/audio/transcriptions", "seconds": seconds_of(wav), **fields})
        words, finish = self._output(seconds_of(wav), int(fields["max_new_tokens"]))
        return StreamingResponse(self._events(words, finish), media_type="text/event-stream")

    async def _events(self, words: list[str], finish: str) -> AsyncIterator[str]:
        ended = False
        try:
            for at in range(0, len(words), _AT_ONCE):
                await self._decode(_AT_ONCE)
                # The last delta of an output that is cut is in the terminal text only.
                if finish == "stop" or at + _AT_ONCE < len(words):
                    delta = "".join(words[at : at + _AT_ONCE])
                    yield f"data: {json.dumps({'type': 'transcript.text.delta', 'delta': delta})}\n\n"
            done = {"type": "transcript.text.done", "text": "".join(words)}
            ended = True
            yield f"data: {json.dumps(done)}\n\ndata: [DONE]\n\n"
        finally:
            self.left += not ended

    async def _decode(self, tokens: int) -> None:
        await asyncio.sleep(tokens / self.rate if self.rate else 0)

    def _output(self, seconds: float, budget: int) -> tuple[list[str], str]:
        words = self.say(seconds)
        if self.ignore_end:
            words = [words[i % len(words)] for i in range(budget + 1)] if words else []
        return words[:budget], "length" if len(words) > budget else "stop"


def positions(seconds: float) -> int:
    """Of the prompt."""
    return 47 + round(12.9 * seconds)


def seconds_of(wav: bytes) -> float:
    with wave.open(io.BytesIO(wav)) as file:
        return float(file.getnframes() / file.getframerate())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m engine.sglang.bench.omni.standin", description=__doc__)
    parser.add_argument("--port", type=int, default=32000)
    parser.add_argument("--rate", type=float, default=200.0, help="tokens a second of each request")
    options = parser.parse_args()
    made = StandIn(rate=options.rate, ignore_end=True)
    uvicorn.run(made.app(), host="127.0.0.1", port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
