"""Growing audio as windows that stay as they are, so that a prompt's beginning is found again. PURE.

The audio encoder attends inside windows of 8 s. A finished window handed over as an item of its own has
the same tokens however much audio follows, and the prefix cache keeps them: a refresh prefills new audio
only. Two things would still change a finished window, and are kept from doing so: the loudest value of
the whole clip, against which features are clipped, and the samples behind the window's end.
"""

from __future__ import annotations

HOP = 160
MARGIN = HOP
"""Samples needed behind a window: its last frame reaches 40 into them, and clips end with whole frames."""


def finished_windows(samples: int, window: int) -> int:
    """How many windows of `window` frames are complete in a clip of `samples`, margin included."""
    return max(0, (samples - MARGIN) // (window * HOP))


def audio_tokens(frames: int, block: int) -> int:
    """Encoder outputs for `frames` mel frames: blocks of `block` frames, each shrunk by three strided
    convolutions of stride two."""
    return frames // block * shrunk(block) + (shrunk(frames % block) if frames % block else 0)


def shrunk(frames: int) -> int:
    """Length after three convolutions of width 3, stride 2, padding 1."""
    for _ in range(3):
        frames = (frames - 1) // 2 + 1
    return frames


def window_lengths(frames: int, window: int) -> list[int]:
    """`frames` cut into full windows and a rest; never empty."""
    full, rest = divmod(frames, window)
    return [window] * full + ([rest] if rest or not full else [])
