"""What the final reply for a window is worth."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from engine.contract import Finish, Hypothesis

from .spans import to_samples

LADDER = 3
"""Tries of a final window before its audio is declared a gap, unless the engine has more to offer."""

NO_SPEECH = 0.6
"""The model's own verdict above which a window without words is believed to hold none."""

DOUBTFUL = to_samples(0.5)
"""Voiced audio after the last word of a final reply that is worth a second decode, without context: a beam
is drawn to an early end of the sentence."""

MISSING = to_samples(2.0)
"""Voiced audio without a word that is a gap, when decoding it again does not help."""

STUCK = to_samples(2.0)
"""Voiced audio to which a refresh that begins with committed words adds none, from which it is asked without
them: a model may take them for all that is said, and adds nothing as long as they stand there."""


class Step(Enum):
    """What follows from a reply."""

    TAKE = auto()
    AGAIN = auto()
    """Decode the window again, along the ladder."""
    REST = auto()
    """Take the words, if there are any, and decode what the words do not reach by itself."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """`cause` is why what the words do not reach is a gap, None where it is none; `keep`, whether the reply's
    words are any."""

    step: Step
    cause: str | None = None
    keep: bool = True


def judge(
    reply: Hypothesis,
    missed: int,
    attempt: int,
    *,
    words: bool,
    forced: bool = False,
    torn: bool = False,
    starving: bool = False,
    tries: int = LADDER,
) -> Judgement:
    """Judge try number `attempt` (from 0) of `tries`: `missed` voiced samples lie behind its last word, or
    behind those that were `forced` on it. Who is `starving` believes the model's word that nobody speaks only
    when it is given twice. That nothing follows forced words is believed when it is said without them, too,
    unless the last of them is `torn`: what a cut left of it would be said as another."""
    if reply.no_speech >= NO_SPEECH and (attempt or not starving):
        missed = 0
    cut_off = reply.finish is not Finish.STOP
    again = cut_off or missed >= (DOUBTFUL if not attempt or (forced and not torn) else MISSING)
    looped = reply.finish is Finish.LOOP
    if attempt and missed >= DOUBTFUL and words and not looped:
        return Judgement(Step.REST)
    if again and attempt and forced:
        # A model may be stuck behind forced words, on every rung.
        return Judgement(Step.REST, keep=not looped)
    if again and attempt + 1 < tries:
        return Judgement(Step.AGAIN)
    if looped and words and missed < DOUBTFUL:
        return Judgement(Step.TAKE)  # what is said again and again, is once: its first round fills the speech
    cause = reply.finish.value if cut_off else "no_text" if again else None
    return Judgement(Step.TAKE, cause, keep=not looped)
