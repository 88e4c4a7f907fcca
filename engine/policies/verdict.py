"""A finished reply judged, the same for every model: what is missing, what is too much. PURE.

The guard on the token stream stops loops and floods while they run; this looks at what came to an end by
itself. Whether anybody spoke is better known by the caller, who has voice activity: energy is all there is
here, so only what energy can tell is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engine.contract import SAMPLE_RATE, Audio, Finish, Hypothesis, RecognitionTask, Word, join
from engine.guards import MAX_PERIOD, Alarm, Finished, inspect
from engine.spread import audible_s
from engine.units import letters

from .serving import Reply

_ROUNDS = 4
"""Times in a row from which the same words count as a loop."""
QUIET = 1e-4
"""Audio that never exceeds this (-80 dBFS) holds no words."""
ALONE_S = 60.0
"""Live windows are shorter, and what they leave out is decoded again by their caller. Of longer audio a
missing end makes the output a cut one."""


def silent(audio: Audio) -> bool:
    """Whether it holds no words; models make some up of such audio."""
    return float(np.abs(audio).max(initial=0.0)) <= QUIET


def judged(task: RecognitionTask, reply: Reply, heard: Hypothesis) -> tuple[Hypothesis, Alarm | None]:
    """`heard` with the words and the finish it deserves, and what was wrong."""
    long = len(task.audio) > ALONE_S * SAMPLE_RATE
    if heard.finish is Finish.LOOP:
        return heard, reply.alarm or Alarm.LOOP  # of which the policy has kept the first round
    if reply.alarm is not None:
        kept = before_loop(heard.words)
        finish = Finish.LENGTH if long and kept else Finish.LOOP
        return replace(heard, words=kept, finish=finish), reply.alarm
    last = heard.words[-1].end if heard.words else None
    output = Finished(
        text=join(heard.words),
        full=reply.full or heard.finish is Finish.LENGTH,
        audio_s=len(task.audio) / SAMPLE_RATE,
        speech_s=0.0 if silent(task.audio) else None,
        # What can be heard behind the last word, not how late it is heard: pauses are no lost text.
        speech_end_s=None if last is None else _after(task, last) + (last - task.start) / SAMPLE_RATE,
        last_s=None if last is None else (last - task.start) / SAMPLE_RATE,
    )
    alarm = inspect(output)
    match alarm:
        case Alarm.CHATTER:
            return replace(heard, words=(), finish=Finish.STOP), alarm
        case Alarm.LENGTH:
            return replace(heard, finish=Finish.LENGTH), alarm
        case Alarm.SHORT if long:
            return replace(heard, finish=Finish.LENGTH), alarm
        case _:
            return heard, alarm


def before_loop(words: Sequence[Word]) -> tuple[Word, ...]:
    """What was said before `words` began to repeat themselves at their end, one round of it included; nothing
    where they do not."""
    said = [letters(word.text) for word in words]
    for period in range(1, len(said) // _ROUNDS + 1):
        place = len(said)
        while place > period and said[place - 1] == said[place - 1 - period]:
            place -= 1
        if len(said) - place >= (_ROUNDS - 1) * period:
            return tuple(words[:place])
        if period == MAX_PERIOD:
            break
    return ()


def _after(task: RecognitionTask, sample: int) -> float:
    return audible_s(task.audio, sample - task.start)
