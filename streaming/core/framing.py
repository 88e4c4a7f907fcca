"""Cuts a stream of samples into whole frames.

The rule here: what comes out depends on the samples alone, never on how they were packed.
"""

from __future__ import annotations

import numpy as np

from engine.contract import FRAME, Audio

EMPTY: Audio = np.zeros(0, np.float32)
EMPTY.flags.writeable = False


class Framer:
    """Keeps the samples that do not fill a frame until more come."""

    def __init__(self) -> None:
        self._rest = EMPTY
        self._samples = 0

    @property
    def samples(self) -> int:
        """Samples given out so far, whole frames only."""
        return self._samples

    def feed(self, audio: Audio) -> Audio:
        """All whole frames (n * FRAME samples) now complete, read-only."""
        if self._rest.size:
            audio = np.concatenate((self._rest, audio))
        whole = audio.size - audio.size % FRAME
        frames = audio[:whole]
        frames.flags.writeable = False
        # A copy, so that a rest of a few samples does not keep a large packet alive.
        self._rest = audio[whole:].copy() if whole else audio
        self._samples += whole
        return frames

    def finish(self) -> Audio:
        """The last samples, fewer than FRAME, read-only; nothing may be fed afterwards."""
        rest, self._rest = self._rest, EMPTY
        rest.flags.writeable = False
        return rest
