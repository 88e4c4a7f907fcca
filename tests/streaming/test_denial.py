"""Reasons to close a stream, as they read over HTTP."""

from __future__ import annotations

import pytest

from streaming.access.quota import KeyLimit
from streaming.denial import later, later_of, plainly, refused, status_of
from streaming.errors import Congested, InternalFault, Overloaded, Restarting, SessionTooLong
from streaming.wire.errors import CloseCode, ProtocolError, WireError


@pytest.mark.parametrize(
    ("error", "status", "later"),
    [
        (Overloaded(3, 5000), 503, "5"),
        (Congested("engine", 200), 503, "1"),
        (Restarting(), 503, "1"),
        (KeyLimit("all are taken", 61_001), 429, "62"),
        (SessionTooLong(60), 413, None),
        (InternalFault(), 500, None),
        (ProtocolError("bad_field", "language: use en", field="language"), 400, None),
    ],
)
def test_a_refusal_says_when_to_come_back_where_that_is_of_use(
    error: WireError, status: int, later: str | None
) -> None:
    answer = refused(plainly, error)
    assert (answer.status_code, answer.headers.get("retry-after")) == (status, later)
    assert bytes(answer.body).decode() == f"{error.message}.\n"


def test_every_close_code_has_a_status() -> None:
    ours = {CloseCode.NORMAL, CloseCode.FAULT, CloseCode.REPLACED}
    assert {code for code in CloseCode if status_of(code) == 500} == ours
    assert status_of(4999) == 500


def test_nobody_is_told_to_come_back_at_once() -> None:
    assert later(0) == {"retry-after": "1"}
    assert later_of(ProtocolError("x", "y")) == {}
