"""Which language a session speaks: pinned, or detected with hysteresis."""

from __future__ import annotations

EVERY = 4


class LanguageTracker:
    """Adopts a language once it is heard clearly, and another only after it was heard twice in a row.

    Short windows are often misjudged: those with less than `min_speech` samples of speech have no vote.
    """

    def __init__(
        self,
        pinned: str | None,
        known: str | None = None,
        *,
        sure: float = 0.6,
        switch: float = 0.85,
        min_speech: int = 32_000,
    ) -> None:
        """`known` is what was adopted before, where it is not `pinned`."""
        self._pinned = pinned
        self._sure, self._switch, self._min_speech = sure, switch, min_speech
        self._rival: str | None = None
        self._asked = 0
        self.language = pinned or known
        self.since = 0
        """Text from before this sample is no context: it may be in another language, and a model that is
        given it writes on in that, or nothing."""

    def ask(self) -> bool:
        """Whether this window is to be heard for its language too: every one until it is known, then every
        `EVERY`th, since it costs a decoding step."""
        self._asked += 1
        return self._pinned is None and (self.language is None or self._asked % EVERY == 0)

    def vote(self, language: str | None, probability: float, speech: int, start: int, end: int) -> None:
        """The verdict of the window from `start` to `end` over its `speech` samples of speech."""
        if self._pinned is not None or language is None:
            return
        before = self.language
        if speech >= self._min_speech:
            self._weigh(language, probability)
        if self.language is None:
            self.since = end
        elif self.language != before:
            self.since = start

    def _weigh(self, language: str, probability: float) -> None:
        if self.language is None:
            if probability >= self._sure:
                self.language = language
        elif language == self.language or probability < self._switch:
            self._rival = None
        elif self._rival == language:
            self.language, self._rival = language, None
        else:
            self._rival = language
