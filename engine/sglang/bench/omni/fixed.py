"""Outputs of a fixed length, whatever a model with random weights says: for measurements of speed only.

    SEAMSCRIBE_FIXED=RATE:RECORDING_RATE:FILE python -m engine.sglang.bench.omni.fixed serve ...

is `seamscribe serve` but for this: each request is given exactly RATE output tokens a second of its audio
(RECORDING_RATE where it is over a minute) and has to fill them; and its words are not the model's but one
each half second that is not quiet, so that refreshes agree as those of a real model do. Every decode's times
go to FILE as JSON lines. Prompt, audio, tokens and time are the engine's.
"""

from __future__ import annotations

import json
import math
import os
import re
import runpy
import sys
import tempfile
import time
from contextvars import ContextVar
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from engine.contract import SAMPLE_RATE, Hypothesis, RecognitionTask, Word
from engine.guards import Alarm, GuardLimits
from engine.policies import POLICIES
from engine.policies.moss_td import Follower, MossTdServing
from engine.policies.serving import Ask, Reply
from engine.sglang.client import SglangRecognizer
from engine.sglang.transport import Part, Request

VARIABLE = "SEAMSCRIBE_FIXED"
SPLIT = "SEAMSCRIBE_FIXED_SPLIT"
"""Set to have recordings decoded in windows, as those of models are that take no whole one."""
LONG_S = 60.0
SLOT = SAMPLE_RATE // 2
QUIET = 0.002
_BLIND = GuardLimits(audio_s=1e9, markup=re.compile(r"(?s).+"))
"""Random weights repeat themselves; nothing of that is looked at here."""


def rates() -> tuple[float, float, str]:
    """Output tokens a second of live audio and of recordings, and the file for the decodes' times."""
    live, recording, file = os.environ[VARIABLE].split(":", 2)
    return float(live), float(recording), file


class FixedServing(MossTdServing):
    """The policy of the model measured, with outputs of fixed length."""

    def __init__(self) -> None:
        super().__init__()
        if os.environ.get(SPLIT):
            self._facts = replace(self._facts, recording_s=None)

    def ask(self, task: RecognitionTask, language: str | None) -> Ask:
        live, recording, _ = rates()
        seconds = len(task.audio) / SAMPLE_RATE
        tokens = math.ceil(seconds * (recording if seconds > LONG_S else live))
        asked = super().ask(replace(task, attempt=0), language)
        return replace(asked, max_new_tokens=max(1, tokens), guard=_BLIND, follow=Silent)

    def read(self, task: RecognitionTask, ask: Ask, reply: Reply) -> Hypothesis:
        known = task.prefix[-1].end if task.prefix else task.start
        words = []
        for slot in range(-(-known // SLOT), task.end // SLOT):
            start = slot * SLOT
            audio = task.audio[start - task.start : start - task.start + SLOT]
            if start >= task.start and float(np.abs(audio).mean()) > QUIET:
                words.append(Word(f"w{slot}", start, start + SLOT, estimated=True, tag="S01"))
        return Hypothesis(tuple(words))


_CAME: ContextVar[dict[str, int]] = ContextVar("came")
"""What came of the decode that runs."""


class Silent(Follower):
    """What random weights write is no time."""

    def reached(self, text: str) -> float | None:
        return None


class Timed(SglangRecognizer):
    """Writes down how long each decode took and what came. That an output filled its budget is as it should
    be here."""

    async def _watch(self, request: Request, ask: Ask, task: RecognitionTask) -> Reply:
        reply = await super()._watch(request, ask, task)
        _CAME.get().update(asked=ask.max_new_tokens, chars=len(reply.text))
        return reply

    @staticmethod
    def _reply(part: Part, alarm: Alarm | None) -> Reply:
        return replace(SglangRecognizer._reply(part, alarm), full=False)

    async def recognize(self, task: RecognitionTask) -> Hypothesis:
        began = time.monotonic()
        cause = None
        came = {"asked": 0, "chars": 0}
        _CAME.set(came)
        try:
            return await super().recognize(task)
        except BaseException as error:
            cause = getattr(error, "cause", type(error).__name__)
            raise
        finally:
            row: dict[str, Any] = {"kind": task.priority.name.lower(), "at": began, "start": task.start}
            row |= {"took": time.monotonic() - began, "audio_s": len(task.audio) / SAMPLE_RATE}
            row |= {"pid": os.getpid(), "output_tokens": self.counters["output_tokens"]}
            note(row | came | {"cause": cause})


def note(row: dict[str, Any]) -> None:
    with open(rates()[2], "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def main(argv: list[str]) -> None:
    POLICIES["moss_td"] = "engine.sglang.bench.omni.fixed:FixedServing"
    vars(import_module("engine.sglang.opening"))["SglangRecognizer"] = Timed
    sys.argv = ["seamscribe", *argv]
    with tempfile.TemporaryDirectory(prefix="seamscribe-fixed-") as place:
        # A crew's processes are started by the name of the server: they are to be such as this one.
        child = Path(place) / "python"
        child.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} -m {__spec__.name} "$@"\n', "utf-8")
        child.chmod(0o755)
        sys.executable = str(child)
        runpy.run_module("streaming", run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
