"""The audio that may still be decoded, addressed by absolute sample index.

Memory is bounded by what the session keeps: `evict` drops everything before an index. Storage is one
array that is compacted when the dropped part outgrows the kept one, so appending costs amortised O(n).
"""

from __future__ import annotations

import numpy as np

from engine.contract import SAMPLE_RATE, Audio


class AudioRing:
    """Mono float32 audio between `start` and `end` (samples, half-open)."""

    def __init__(self, start: int = 0) -> None:
        self._store: Audio = np.zeros(SAMPLE_RATE * 4, np.float32)
        self._offset = 0  # place of `start` in the store
        self.start = start
        self.end = start

    def append(self, audio: Audio) -> None:
        size = self.end - self.start
        if self._offset + size + len(audio) > len(self._store):
            self._compact(size, size + len(audio))
        at = self._offset + size
        self._store[at : at + len(audio)] = audio
        self.end += len(audio)

    def _compact(self, size: int, needed: int) -> None:
        """Move the kept audio to the front, of a larger or smaller store where that fits better."""
        capacity = max(SAMPLE_RATE * 4, 2 * needed)
        store = np.zeros(capacity, np.float32)
        store[:size] = self._store[self._offset : self._offset + size]
        self._store, self._offset = store, 0

    def evict(self, before: int) -> None:
        """Forget everything before this sample index."""
        step = min(max(before - self.start, 0), self.end - self.start)
        self._offset += step
        self.start += step

    def copy(self, start: int, end: int) -> Audio:
        """A read-only copy of [start, end); raises IndexError where it is no longer, or not yet, there.

        A copy, since a task outlives later compaction, and a view would see it.
        """
        if not self.start <= start <= end <= self.end:
            raise IndexError(f"[{start}, {end}) is not inside [{self.start}, {self.end})")
        at = self._offset + start - self.start
        audio = self._store[at : at + end - start].copy()
        audio.flags.writeable = False
        return audio

    def energies(self, start: int, end: int, hop: int) -> Audio:
        """Mean square of each whole `hop` samples of [start, end), shape ((end - start) // hop,)."""
        count = (end - start) // hop
        at = self._offset + start - self.start
        frames = self._store[at : at + count * hop].reshape(count, hop)
        result: Audio = np.einsum("ij,ij->i", frames, frames) / np.float32(hop)
        return result
