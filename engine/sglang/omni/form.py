"""The two routes of SGLang-Omni that take audio, and which request goes to which. PURE.

| | `/generate` | `/v1/audio/transcriptions` |
|---|---|---|
| says how an output ended, and its tokens | yes | no |
| sends the output while it grows | no | yes |
| stops when its client leaves | no | yes |
| sends the request's audio back | yes | no |

What is short goes to the first: its budget bounds what a loop costs, and a cut output is told. What is to be
watched goes to the second, and is judged by how far its last time mark reaches.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from engine.contract import EngineError
from engine.sglang.forms import Call, Reader
from engine.sglang.http1 import JSON
from engine.sglang.payload import as_wav, wav_url
from engine.sglang.transport import Part, Request, part_of

GENERATE = "/generate"
TRANSCRIPTIONS = "/v1/audio/transcriptions"
_FIELDS = ("max_new_tokens", "temperature", "repetition_penalty")
_OURS = ("custom_params", "stream_interval")
"""Sampling parameters that its `/generate` refuses."""


class Omni:
    """A `Form`: an output that is streamed goes over the transcription route, any other over `/generate`,
    where that `generates`: where it takes the model's audio, that is."""

    aborts = False

    def __init__(self, *, generates: bool = True) -> None:
        self._generates = generates

    def call(self, request: Request) -> Call:
        if self._generates and not request.stream:
            return Call(GENERATE, msgspec.json.encode(generate_body(request)), JSON, lambda: part_of)
        boundary = secrets.token_hex(16)
        body = multipart(request, boundary)
        return Call(TRANSCRIPTIONS, body, f"multipart/form-data; boundary={boundary}", growing)


def generate_body(request: Request) -> dict[str, Any]:
    """Audio as a WAV data URL beside the prompt, one answer. It takes no id and no priority."""
    sampling = {k: v for k, v in request.sampling.items() if k not in _OURS}
    return {
        "prompt": request.text or "",
        "metadata": {"audio_data": wav_url(request.pcm), **request.sampling.get("custom_params", {})},
        "sampling_params": sampling,
        "return_logprob": False,
    }


def multipart(request: Request, boundary: str) -> bytes:
    """The same as a form. A penalty that changes nothing is left out: older servers know none."""
    sampling = request.sampling
    fields = {name: sampling[name] for name in _FIELDS if name in sampling}
    if fields.get("repetition_penalty") == 1.0:
        del fields["repetition_penalty"]
    fields |= {"prompt": request.text or "", "response_format": "json", "stream": "true"}
    fields |= sampling.get("custom_params", {})
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="audio.wav"\r\n'
        "Content-Type: audio/wav\r\n\r\n"
    ).encode()
    return b"".join((*parts, head, as_wav(request.pcm), f"\r\n--{boundary}--\r\n".encode()))


def growing() -> Reader:
    """Deltas to cumulative parts. The last event holds the whole text, which counts: where an output ran into
    its budget the end of it was in no delta. Why an output ended is not told."""
    text = ""

    def read(event: Mapping[str, Any]) -> Part:
        nonlocal text
        match event:
            case {"type": "transcript.text.delta", "delta": str(delta)}:
                text += delta
                return Part((), text, None)
            case {"type": "transcript.text.done", "text": str(whole)}:
                return Part((), whole, "stop", told=False)
            case _:
                kind = str(event.get("type"))[:40]
                raise EngineError("garbage", f"the engine sent an event {kind!r}", retryable=True)

    return read
