"""Where a request's time went, from the events that SGLang-Omni writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.sglang.bench.omni import direct
from engine.sglang.bench.omni.direct import FEATURES_END, FEATURES_START, SPANS, phases, shares

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


def own(name: str, *times_s: float) -> list[dict[str, object]]:
    """Events of our checkpoint's processor, which knows no request."""
    return [
        {"request_id": f"{name}-{at}", "event_name": name, "timestamp_ns": round(at * 1e9)} for at in times_s
    ]


def test_a_build_is_told_apart_by_what_the_processor_says() -> None:
    told = events("a", 0.0, 1.0) + events("b", 0.5, 2.5)
    told += own(FEATURES_START, 0.1, 0.7) + own(FEATURES_END, 0.3, 1.1) + own(SPANS, 0.4, 1.1)
    found = phases(iter(told))
    parts = {"read": 0.15, "features": 0.3, "prompt": 0.05, "encode": 1.0}
    assert found == pytest.approx({"build": 1.5, **parts})
    assert shares(found)["features"] == pytest.approx(20.0)
    with pytest.raises(ValueError, match="2 requests began a part of their build and 1 ended it"):
        phases(iter(event for event in told if event["timestamp_ns"] != 1_100_000_000))


def test_the_processor_says_it_by_these_names() -> None:
    text = Path(direct.__file__).with_name("processing.py").read_text("utf-8")
    assert all(f'"{name}"' in text for name in (FEATURES_START, FEATURES_END, SPANS))
