"""How a kind of server is spoken to: where a request goes, what it holds, how its answer is read. PURE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec

from .http1 import JSON
from .payload import as_base64, as_url
from .transport import Part, Request, part_of

Reader = Callable[[Mapping[str, Any]], Part]
"""The part that one message of an answer makes, given one after another; raises `EngineError`."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One request as it is sent. `reader` makes one for each answer to it."""

    path: str
    body: bytes
    media: str
    reader: Callable[[], Reader]


class Form(Protocol):
    """One kind of server."""

    @property
    def aborts(self) -> bool:
        """Whether a request is stopped by its id; else only by leaving."""
        ...

    def call(self, request: Request) -> Call: ...


class Sglang:
    """SGLang's own `/generate`: everything in one JSON body, cumulative parts back."""

    aborts = True

    def call(self, request: Request) -> Call:
        return Call("/generate", generate_json(request), JSON, lambda: part_of)


def generate_json(request: Request) -> bytes:
    """`generate_body` as JSON. Of base64 no character needs an escape: a library that looks at each of a few
    hundred thousand would take half as long again as writing them does."""
    body = generate_body(replace(request, pcm=b""))
    head = msgspec.json.encode(body["audio_data"])[:-1]
    body["audio_data"] = msgspec.Raw(b"".join((head, as_base64(request.pcm), b'"')))
    return msgspec.json.encode(body)


def generate_body(request: Request) -> dict[str, Any]:
    """The body of SGLang's own `/generate`, of fields that its router knows too."""
    sampling = dict(request.sampling)
    body: dict[str, Any] = {
        "rid": request.rid,
        "audio_data": as_url(request.pcm, sampling.pop("custom_params", {})),
        "sampling_params": sampling,
        "stream": request.stream,
    }
    if request.input_ids is not None:
        body["input_ids"] = request.input_ids
    else:
        body["text"] = request.text
    if request.priority is not None:
        body["priority"] = request.priority
    if request.scheduler is not None:
        body["routed_dp_rank"] = request.scheduler
    if request.logprobs:
        body["return_logprob"] = True
    return body
