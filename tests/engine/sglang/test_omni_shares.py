"""Where a request's time went, from the events that SGLang-Omni writes."""

from __future__ import annotations

import pytest

from engine.sglang.bench.omni.direct import phases, shares

_NAMES = (
    "scheduler_request_build_start",
    "scheduler_request_build_end",
    "scheduler_queue_enter",
    "scheduler_prefill_start",
    "scheduler_prefill_end",
    "stage_complete",
)


def events(request: str, *times_s: float) -> list[dict[str, object]]:
    return [
        {"request_id": request, "event_name": name, "timestamp_ns": round(at * 1e9)}
        for name, at in zip(_NAMES, times_s, strict=False)
    ]


def test_phases_are_means_over_the_requests_that_have_them() -> None:
    told = events("a", 0.0, 0.2, 0.2, 0.3, 0.4, 1.1) + events("b", 1.0, 1.4, 1.4, 1.7, 1.8)
    # A stage that tells its end twice has ended the first time.
    told += [{"request_id": "a", "event_name": "stage_complete", "timestamp_ns": 9_000_000_000}]
    found = phases(iter(told))
    assert found == pytest.approx({"build": 0.3, "queue": 0.2, "prefill": 0.1, "decode": 0.7})


def test_shares_leave_waiting_out_and_add_up() -> None:
    found = shares({"build": 0.2, "queue": 5.0, "prefill": 0.1, "decode": 0.7})
    assert found == pytest.approx({"build": 20.0, "prefill": 10.0, "decode": 70.0})
    assert shares({"queue": 1.0}) == {}
