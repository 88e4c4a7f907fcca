"""Refusals as OpenAI writes them: `{"error": {message, type, param, code}}`. Its programs try 429 and 5xx
again, after `Retry-After`, and give up on the rest."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response

from streaming.denial import COME_BACK, later, status_of
from streaming.dialects.openai_shapes import body
from streaming.dialects.openai_shapes import deny as deny
from streaming.wire.errors import WireError


class ApiError(Exception):
    """A request cannot be carried out."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.retry_after_s = retry_after_s

    @property
    def body(self) -> dict[str, Any]:
        return body(self.status, self.message, self.code, self.param)

    def response(self) -> Response:
        headers = {} if self.retry_after_s is None else later(self.retry_after_s)
        return JSONResponse(self.body, self.status, headers)


def of_wire(error: WireError) -> ApiError:
    """The same refusal as this protocol has it."""
    status = status_of(error.close, error.code)
    retry = error.retry_after_ms
    param = {"audio.encoding": "file", "audio.channels": "file", "audio.sample_rate": "file"}.get(
        error.field or "", error.field
    )
    return ApiError(
        status,
        error.message,
        code=error.code,
        param=param,
        retry_after_s=None if retry is None or status not in COME_BACK else retry / 1000,
    )
