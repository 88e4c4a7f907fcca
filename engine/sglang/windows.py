"""How much silence a short clip is padded with before the encoder sees it.

The model was trained on 30 s. Encoding less is cheaper in proportion (attention more than that), but with
too little silence behind the last word it does not stop: with none, error rates pass 100 %. PURE.
"""

from __future__ import annotations

import math

RATE = 16_000
HOP = 160
"""Samples a mel frame; two frames make one encoder position."""

DEVICE_FRONT_END = "SEAMSCRIBE_DEVICE_FRONT_END"
"""Environment variable, "1" where our model package is loaded and computes features on the device."""

SMALLEST_S = 10.0
TAIL_S = 6.0
STEP_S = 2.5
"""Windows come in steps: requests of one step share one encoder batch."""


def window_frames(samples: int, most: int, asked_s: float | None = None) -> int:
    """Mel frames to encode for a clip of `samples`, at most `most`.

    `asked_s` overrides the rule (30 for finals that want the full window) but never cuts the clip.
    """
    speech_s = samples / RATE
    wanted_s = max(SMALLEST_S, speech_s + TAIL_S) if asked_s is None else max(asked_s, speech_s)
    steps = math.ceil(wanted_s / STEP_S - 1e-9)
    return min(most, round(steps * STEP_S * RATE) // HOP)
