"""Why a request about a recording is not carried out, before the protocol that it came by writes it down."""

from __future__ import annotations

from streaming.denial import COME_BACK, status_of
from streaming.wire.errors import WireError


class Refusal(Exception):
    """A request cannot be carried out. The message names the field and the remedy."""

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


def of_wire(error: WireError) -> Refusal:
    """The refusal of a stream as that of a request."""
    status = status_of(error.close, error.code)
    retry = error.retry_after_ms
    return Refusal(
        status,
        error.message,
        code=error.code,
        param=error.field,
        retry_after_s=None if retry is None or status not in COME_BACK else retry / 1000,
    )
