"""Sessions of recordings: all of the audio is there, and nobody waits for single words.

So nothing is decoded twice to show it early. Windows become as long as they may be and end where somebody
pauses, which gives the model more on both sides of a word than live audio can.
"""

from __future__ import annotations

from engine.contract import Finish, Hypothesis, Word

from .judging import DOUBTFUL
from .segmenter import Cause, Cut
from .session import Session
from .spans import to_samples

LONG = to_samples(60.0)
"""What fails of longer windows is not asked for again whole: that takes minutes, and would fail again."""


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

    def receive_failure(self, task: str, cause: str, *, retryable: bool) -> None:
        """A long window that the engine will not have is asked for in shorter ones: how much it can hold is
        known only there."""
        cut = self._cut
        mine = self._task is not None and task == self._task.id
        if cut is None or not mine or retryable or cut.end - cut.start <= LONG:
            super().receive_failure(task, cause, retryable=retryable)
            return
        self._task = self._cut = None
        length = max((cut.end - cut.start) // 2, LONG)
        self._segmenter.shorten(length)
        self._send(self._segmenter.early(self._ring, cut.start + length, LONG))

    def _judge(self, cut: Cut, words: tuple[Word, ...], hypothesis: Hypothesis) -> None:
        """Of a long window that was cut off what it reached is taken, and the rest asked for by itself; one
        that came to nothing begins with a window of `LONG`, which has the ladder."""
        missed = self._misses(cut, words)
        if cut.end - cut.start <= LONG or (hypothesis.finish is Finish.STOP and missed < DOUBTFUL):
            super()._judge(cut, words, hypothesis)
        elif hypothesis.finish is not Finish.LOOP and words and words[-1].end - cut.start >= LONG // 2:
            reached = Cut(cut.start, words[-1].end, Cause.SEAM)
            self._finish(reached, words, cause=None)
            self._segmenter.origin = max(self._segmenter.origin, reached.end)
        else:
            self._send(self._segmenter.early(self._ring, cut.start + LONG, LONG))
