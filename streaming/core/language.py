"""Which language a session speaks: pinned, or detected with hysteresis."""

from __future__ import annotations


class LanguageTracker:
    """Adopts a language once it is heard clearly, and another only after it was heard twice in a row.

    Short windows are often misjudged, so votes of windows with less than `min_speech` samples of speech
    count only while no language is known.
    """

    def __init__(
        self, pinned: str | None, *, sure: float = 0.6, switch: float = 0.85, min_speech: int = 48_000
    ) -> None:
        self._pinned = pinned
        self._sure, self._switch, self._min_speech = sure, switch, min_speech
        self._rival: str | None = None
        self.language = pinned

    def vote(self, language: str | None, probability: float, speech: int) -> None:
        """One window's verdict over `speech` samples of speech."""
        if self._pinned is not None or language is None:
            return
        if speech < self._min_speech:
            return
        if self.language is None:
            if probability >= self._sure:
                self.language = language
            return
        if language == self.language or probability < self._switch:
            self._rival = None
        elif self._rival == language:
            self.language, self._rival = language, None
        else:
            self._rival = language
