"""When speech brings no text, what is done about it, and what that brought.

The voice detector says that somebody speaks, decodes are answered, and no word comes: the model is in a rut,
or what was taken for speech is none. After so much voiced audio without a word the window is decoded again
along the ladder, and what follows from a new seam. The next try comes after as much voiced audio once more,
so noise that is taken for speech costs one decode more for each such stretch at the most.
"""

from __future__ import annotations

from enum import StrEnum


class Repair(StrEnum):
    """What came of decoding again."""

    TEXT = "text"
    GAP = "gap"
    """Nothing: the audio is a gap with its cause."""
    NO_SPEECH = "no_speech"
    """The model insists that nobody speaks, and is believed."""


class Hunger:
    """Counts voiced samples; no audio and no clock."""

    def __init__(self, most: int) -> None:
        """Starving is who has had no word for `most` voiced samples."""
        self._most = most
        self._before = 0  # without a word, in what is final since the newest word
        self._repairing = False
        self._repairs: list[Repair] = []

    @property
    def most(self) -> int:
        return self._most

    def starving(self, missed: int) -> bool:
        """Whether it is time to do something, after `missed` more voiced samples without a word."""
        return self._before + missed >= self._most

    def repair(self) -> None:
        """Something is done."""
        self._repairing = True

    def finished(self, missed: int, *, words: bool, gap: bool) -> None:
        """Audio became final: with `words`, or as a `gap`, and `missed` voiced samples behind them."""
        self._before = missed if words else self._before + missed
        if self._repairing:
            self._repairing = False
            self._before = 0
            self._repairs.append(Repair.GAP if gap else Repair.TEXT if words else Repair.NO_SPEECH)

    def repairs(self) -> list[Repair]:
        """What was done since the last call."""
        repairs, self._repairs = self._repairs, []
        return repairs
