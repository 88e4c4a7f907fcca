"""How a session cuts, refreshes and commits: the numbers, in one value."""

from __future__ import annotations

from dataclasses import dataclass

from .gate import GateSettings
from .segmenter import WindowSettings
from .spans import to_samples
from .stabilizer import Horizons


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How a session cuts, refreshes and commits. Seconds, where not said otherwise."""

    max_delay_s: float = 3.0
    """Every word is committed this long after it was spoken, at the latest."""
    pause_s: float = 0.6
    """Silence that ends a segment."""
    refresh_s: float = 0.7
    """New audio between two decodes of an open segment, without load."""
    first_s: float = 0.3
    """Speech before the first decode of a segment."""
    soft_pause_s: float = 0.24
    """Silence after which a decode is made at once: it will serve as the final one."""
    hold_s: float = 0.6
    """Words ending this near to the end of the audio wait for another decode."""
    doubt_s: float = 2.2
    """The same for words the model gives less than `confidence`."""
    confidence: float = 0.7
    """Probability, 0 to 1."""
    least_hold_s: float = 0.2
    """Even words that are due wait while they end this near to the end of the audio."""
    pad_s: float = 0.2
    """Audio on both sides of speech that counts as speech; at most half of `pause_s`."""
    onset_s: float = 0.06
    """Voice in a row that begins speech."""
    voice_on: float = 0.5
    """Probability of a voice from which on a frame is voiced, in silence."""
    voice_off: float = 0.35
    """The same, in speech."""
    keep_s: float = 6.0
    """Committed audio that is decoded again at a window's beginning."""
    slack_s: float = 1.0
    """A window's beginning moves by at least this much."""
    search_s: float = 2.0
    """Where nobody pauses, the quietest place for a cut is looked for in this much audio."""
    window_s: float = 24.0
    """Longest window the scheduler wants; the model's own limit also holds."""
    forget_s: float = 2.0
    """Silence after which a new segment gets a window of its own."""
    context_s: float = 60.0
    """How far back the text goes that is given as context."""
    segment_s: float = 15.0
    """A segment without a pause is closed near this length, at a sentence's end; at twice it anyway."""
    starve_s: float = 8.0
    """So much speech without a word is decoded again along the ladder, and what follows from a new seam."""
    speakers: bool = True
    """Whether voices are told apart where the client does not say."""
    revise_s: float = 30.0
    """A speaker's label may be revised this long after the words were spoken."""

    def gate(self) -> GateSettings:
        return GateSettings(
            on=self.voice_on,
            off=self.voice_off,
            onset=to_samples(self.onset_s),
            pause=to_samples(self.pause_s),
            pad=to_samples(self.pad_s),
        )

    def horizons(self, end: int, due: int, *, unsure: bool) -> Horizons:
        """For a decode that heard up to `end`, where words up to `due` can wait no longer; samples. `unsure`:
        every word counts as doubtful."""
        return Horizons(
            sure=end - to_samples(self.doubt_s if unsure else self.hold_s),
            doubtful=end - to_samples(self.doubt_s),
            due=min(due, end - to_samples(self.least_hold_s)),
            confidence=self.confidence,
        )

    def window(self, model_limit_s: float) -> WindowSettings:
        """For a model that takes `model_limit_s` seconds; where that is little, all that must fit into one
        window shrinks with it, so that every cut moves the window on."""
        longest = to_samples(min(self.window_s, model_limit_s))
        return WindowSettings(
            first=to_samples(self.first_s),
            refresh=to_samples(self.refresh_s),
            soft_pause=to_samples(self.soft_pause_s),
            tail=to_samples(self.soft_pause_s) // 2,
            keep=min(to_samples(self.keep_s), longest // 3),
            slack=min(to_samples(self.slack_s), longest // 8),
            search=min(to_samples(self.search_s), longest // 4),
            longest=longest,
            forget=to_samples(self.forget_s),
        )
