"""A finished reply judged, the same for every model: what is missing, what is too much. PURE.

The guard on the token stream stops loops and floods while they run; this looks at what came to an end by
itself. Whether anybody spoke is better known by the caller, who has voice activity: energy is all there is
here, so only what energy can tell is judged.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.contract import SAMPLE_RATE, Finish, Hypothesis, RecognitionTask, join
from engine.guards import Alarm, Finished, inspect
from engine.spread import audible_s

from .serving import Reply

QUIET = 1e-4
"""Audio that never exceeds this (-80 dBFS) holds no words."""
ALONE_S = 60.0
"""Live windows are shorter, and what they leave out is decoded again by their caller. Of longer audio a
missing end makes the output a cut one."""


def judged(task: RecognitionTask, reply: Reply, heard: Hypothesis) -> tuple[Hypothesis, Alarm | None]:
    """`heard` with the words and the finish it deserves, and what was wrong."""
    if reply.alarm is not None:
        return replace(heard, finish=Finish.LOOP), reply.alarm
    if heard.finish is Finish.LOOP:
        return heard, Alarm.LOOP
    last = heard.words[-1].end if heard.words else None
    quiet = float(np.abs(task.audio).max(initial=0.0)) <= QUIET
    output = Finished(
        text=join(heard.words),
        full=reply.full or heard.finish is Finish.LENGTH,
        audio_s=len(task.audio) / SAMPLE_RATE,
        speech_s=0.0 if quiet else None,
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
        case Alarm.SHORT if output.audio_s > ALONE_S:
            return replace(heard, finish=Finish.LENGTH), alarm
        case _:
            return heard, alarm


def _after(task: RecognitionTask, sample: int) -> float:
    return audible_s(task.audio, sample - task.start)
