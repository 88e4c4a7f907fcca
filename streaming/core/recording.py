"""Sessions of recordings: all of the audio is there, and nobody waits for single words.

So nothing is decoded twice to show it early. Windows become as long as they may be and end where somebody
pauses, which gives the model more on both sides of a word than live audio can.
"""

from __future__ import annotations

from .session import Session
from .spans import to_samples


class RecordedSession(Session):
    """One part of a recording, decoded window by window. The same audio gives the same windows, however fast
    it comes."""

    def _plan(self) -> None:
        # A pause that ends by the window's end is known once so much more was heard.
        reach = self._now - to_samples(self._s.pause_s)
        idle = self._task is None and not self._flushes and not self._ending
        if idle and self._segmenter.fits(reach):
            self._settle()
        else:
            super()._plan()
