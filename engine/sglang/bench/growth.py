"""What one more second of a long turn costs: a turn that grows second by second, alone on the engine."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from engine.contract import Priority, RecognitionTask
from engine.sglang.client import SglangRecognizer

from .meters import percentile


async def growth(recognizer: SglangRecognizer, turn_s: int, most: int = 12) -> dict[str, Any]:
    """Delays of the refreshes of a turn of `turn_s` seconds; at most `most` of them, the last ones."""
    audio = (np.random.default_rng(turn_s).standard_normal(turn_s * 16_000) * 0.05).astype(np.float32)
    first = max(2, turn_s - most + 1)
    delays: list[float] = []
    prompt0, cached0 = recognizer.counters["prompt_tokens"], recognizer.counters["cached_tokens"]
    for second in range(first - 1, turn_s + 1):
        if second == first:
            # The refresh before the first one filled the cache, as an earlier refresh would have.
            prompt0, cached0 = recognizer.counters["prompt_tokens"], recognizer.counters["cached_tokens"]
        task = RecognitionTask(
            f"growth.{turn_s}.{second}.{time.monotonic()}",
            f"growth{turn_s}",
            audio[: second * 16_000],
            0,
            Priority.REFRESH,
            language="en",
        )
        began = time.monotonic()
        await recognizer.recognize(task)
        if second >= first:
            delays.append(time.monotonic() - began)
    prompt = recognizer.counters["prompt_tokens"] - prompt0
    return {
        "refresh_n": len(delays),
        "refresh_p50": percentile(delays, 0.5),
        "refresh_p95": percentile(delays, 0.95),
        "refresh_max": max(delays),
        "cached_share": (recognizer.counters["cached_tokens"] - cached0) / max(prompt, 1),
    }
