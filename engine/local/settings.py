"""Knobs of the embedded engine, read once and passed as a value."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WindowRule:
    """How much silence a window ends with: its length is max(`minimum_s`, audio + `pad_s`), rounded up.

    Without enough silence behind the speech these models do not stop; much of it costs encoder time.
    """

    minimum_s: float = 10.0
    pad_s: float = 5.0
    round_s: float = 0.5

    def __post_init__(self) -> None:
        if self.minimum_s < 0 or self.pad_s < 0 or self.round_s <= 0:
            raise ValueError("window lengths must not be negative and their rounding must be positive")

    def frames(self, samples: int, limit_s: float) -> int:
        """Feature frames (10 ms) of the padded window over `samples` samples, even, at most the limit."""
        seconds = max(self.minimum_s, samples / 16_000 + self.pad_s)
        steps = -(-round(seconds * 1000) // round(self.round_s * 1000))
        frames = round(steps * self.round_s * 100)
        return min(frames + frames % 2, round(limit_s * 100))


@dataclass(frozen=True, slots=True)
class DecodeSettings:
    """How tasks are decoded: `quick_*` first partials and, under load, refreshes; `thorough_*` all others."""

    quick_window: WindowRule = field(default_factory=lambda: WindowRule(minimum_s=9.0, pad_s=4.0))
    thorough_window: WindowRule = field(default_factory=lambda: WindowRule(minimum_s=10.0, pad_s=6.0))
    quick_beam: int = 1
    thorough_beam: int = 5
    forced_length_penalty: float = 2.0
    """Exponent of the length that a beam's score is divided by after a forced prefix, 1 without one. The
    forced words count as length, so a beam would rather end the sentence early (1.3 points of word errors
    with base)."""
    align: bool = True
    """Word times by alignment (about a tenth of a decode); without it they are estimated."""
    compute: str = "int8"
    """The runtime's arithmetic: "int8" rounds the weights, "float32" takes them as they are."""
    silence_peak: float = 1e-4
    """Audio that never exceeds this (-80 dBFS) is not decoded: it holds no words."""
    deadline_s: float = 30.0
    """Longest wait for one task, queueing inside the engine included."""
