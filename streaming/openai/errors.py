"""Refusals as OpenAI writes them: `{"error": {message, type, param, code}}`. Its programs try 429 and 5xx
again, after `Retry-After`, and give up on the rest."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response

from streaming.denial import Refusal, later_than
from streaming.dialects.openai_shapes import body
from streaming.dialects.openai_shapes import deny as deny

_PARAMS = {"audio.encoding": "file", "audio.channels": "file", "audio.sample_rate": "file"}
"""What our names for it are called there."""


def body_of(refusal: Refusal) -> dict[str, Any]:
    """The JSON of a refusal."""
    param = _PARAMS.get(refusal.param or "", refusal.param)
    return body(refusal.status, refusal.message, refusal.code, param)


def refuse(refusal: Refusal) -> Response:
    """The answer."""
    return JSONResponse(body_of(refusal), refusal.status, later_than(refusal))
