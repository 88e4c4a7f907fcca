"""Broken decoding, seen while it happens: loops, floods, cut and missing text.

PURE. A guard reads one output as it grows and says when to stop it; `inspect` judges a finished one. What
follows (abort by id, another rung of the ladder, a gap) is the caller's business.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from .units import is_unspaced

MAX_PERIOD = 64
"""Longest phrase, in tokens, whose repetition is looked for."""
_TEXT_PERIOD = 80
"""The same in characters."""
_TEXT_TAIL = 960


class Alarm(StrEnum):
    """Why an output is not to be trusted; a stable word for metrics."""

    LOOP = "loop"
    """It says the same again and again."""
    FLOOD = "flood"
    """More text than anyone can say in the time."""
    LENGTH = "length"
    """The budget ran out: the end is missing."""
    SHORT = "short"
    """It ends long before the speech does."""
    SILENT = "silent"
    """Speech, and no text."""
    CHATTER = "chatter"
    """Text, and no speech."""


@dataclass(frozen=True, slots=True)
class GuardLimits:
    """What one output may do. Seconds of audio, characters, tokens.

    A character of a script without spaces counts `dense` times: it says as much as several letters.
    `markup` matches what is no speech in the text (time marks, speaker tags).
    """

    audio_s: float
    chars_per_s: float = 36.0
    slack_chars: int = 48
    dense: float = 3.0
    rounds: int = 4
    """Times a phrase stands in a row before it counts as a loop."""
    single_rounds: int = 10
    """The same for a single token: people do say "no no no no"."""
    min_tokens: int = 12
    """Shorter repetitions are left alone."""
    markup: re.Pattern[str] | None = None


class TokenGuard:
    """Watches one growing output."""

    def __init__(self, limits: GuardLimits) -> None:
        self._limits = limits
        self._seen = 0

    def feed(self, ids: Sequence[int], text: str = "") -> Alarm | None:
        """The whole output so far, token ids and text (either may be empty); the first alarm it raises.

        Costs the new tokens only, not the whole output.
        """
        if len(ids) > self._seen and (period := repetition(ids, self._limits)) is not None:
            return Alarm.LOOP if period else None
        self._seen = len(ids)
        spoken = (
            self._limits.markup.sub("", text[-_TEXT_TAIL:]) if self._limits.markup else text[-_TEXT_TAIL:]
        )
        if _text_loops(spoken):
            return Alarm.LOOP
        if text and weight(text, self._limits) > self._budget():
            return Alarm.FLOOD
        return None

    def _budget(self) -> float:
        return self._limits.audio_s * self._limits.chars_per_s + self._limits.slack_chars


def repetition(ids: Sequence[int], limits: GuardLimits) -> int | None:
    """Length of the phrase that `ids` end with several times over; None where they do not."""
    size = len(ids)
    last = ids[-1] if size else None
    for period in range(1, min(MAX_PERIOD, size // 2) + 1):
        if ids[size - 1 - period] != last:
            continue
        rounds = limits.single_rounds if period == 1 else limits.rounds
        needed = max(rounds * period, limits.min_tokens)
        if size >= needed and all(
            ids[size - 1 - back] == ids[size - 1 - back - period] for back in range(needed - period)
        ):
            return period
    return None


def weight(text: str, limits: GuardLimits) -> float:
    """How much speech `text` stands for, in characters of an alphabet."""
    spoken = limits.markup.sub("", text) if limits.markup else text
    dense = 0 if spoken.isascii() else sum(1 for char in spoken if is_unspaced(char))
    return len(spoken) - dense + dense * limits.dense


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished output and what is known of its audio, in seconds from the window's beginning.

    `speech_s` and `speech_end_s` come from voice activity (None: not known), `last_s` is the end of the
    last word or the last time mark (None: the model gives none).
    """

    text: str
    full: bool
    """The output budget ran out."""
    audio_s: float
    speech_s: float | None = None
    speech_end_s: float | None = None
    last_s: float | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """When a finished output counts as missing something."""

    tail_s: float = 3.0
    """Speech left over after the last time mark that is taken for lost text."""
    least_speech_s: float = 1.0
    """Less speech than this may well be no word."""
    no_speech_s: float = 0.1
    """Text from less speech than this is made up."""


def inspect(output: Finished, rules: Coverage | None = None) -> Alarm | None:
    """Judge a finished output: cut, ending early, silent where somebody spoke, or speaking out of silence."""
    rules = rules or Coverage()
    if output.full:
        return Alarm.LENGTH
    empty = not output.text.strip()
    if output.speech_s is not None:
        if empty and output.speech_s >= rules.least_speech_s:
            return Alarm.SILENT
        if not empty and output.speech_s < rules.no_speech_s:
            return Alarm.CHATTER
    if empty or output.last_s is None:
        return None
    end = output.audio_s if output.speech_end_s is None else output.speech_end_s
    return Alarm.SHORT if end - output.last_s > rules.tail_s else None


def _text_loops(text: str) -> bool:
    """Whether `text` ends in a repetition that time marks or tags hid from the tokens."""
    size = len(text)
    for period in range(1, min(_TEXT_PERIOD, size // 4) + 1):
        if text[-1] != text[-1 - period]:
            continue
        rounds = 16 if period <= 4 else 8 if period <= 20 else 5
        span = rounds * period
        if size >= span and text[size - span : size - period] == text[size - span + period :]:
            return bool(text[-period:].strip())
    return False
