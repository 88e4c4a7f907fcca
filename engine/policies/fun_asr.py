"""Fun-ASR on SGLang-Omni: short clips, hotwords, plain text. PURE."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from engine.contract import SAMPLE_RATE, Hypothesis, RecognitionTask
from engine.guards import GuardLimits

from .ladder import Rung, rung_of
from .serving import Ask, LanguageUntold, ModelFacts, Reply
from .text_words import estimated_words, readable

NATIVE_S = 30.0
AUDIO_TOKENS_PER_S = 2.1
MOST_BUDGET = 200
"""The route refuses more, however dense the speech."""
LEAST_BUDGET = 16
_CONTROL = re.compile(r"<\|[^|<>]*\|>")


LADDER = (
    Rung(context=True),
    Rung(context=False, repetition_penalty=1.1),
    Rung(context=False, temperature=0.1, repetition_penalty=1.3),
)


class FunAsrServing(LanguageUntold):
    """A `ServingPolicy`; one instance a checkpoint."""

    def __init__(self, *, kv_bytes_per_token: int | None = None) -> None:
        self._facts = ModelFacts(
            native_s=NATIVE_S,
            audio_tokens_per_s=AUDIO_TOKENS_PER_S,
            context_tokens=2048,
            kv_bytes_per_token=kv_bytes_per_token,
            chunked_prefill=True,
            prefix_cache=True,
            word_times=False,
            forced_prefix=False,
            context_text=False,
            pipeline="FunASRPipelineConfig",
            generates=False,
        )

    @property
    def facts(self) -> ModelFacts:
        return self._facts

    def ask(self, task: RecognitionTask, language: str | None) -> Ask:
        rung = rung_of(LADDER, task.attempt)
        seconds = len(task.audio) / SAMPLE_RATE
        return Ask(
            max_new_tokens=budget(seconds),
            guard=GuardLimits(audio_s=seconds),
            text=hotword_list(task.hotwords) if rung.context else "",
            temperature=rung.temperature,
            repetition_penalty=rung.repetition_penalty,
            # Chinese is what it does unasked; naming it changes the prompt it was trained on.
            custom={} if language in (None, "zh") else {"language": language},
            language=language,
        )

    def read(self, task: RecognitionTask, ask: Ask, reply: Reply) -> Hypothesis:
        """Words behind the prefix: what the output repeats of it is left out by its share of the text."""
        words = estimated_words(readable(_CONTROL.sub("", reply.text)), replace(task, prefix=()))
        if task.prefix:
            known = task.prefix[-1].end
            words = [word for word in words if (word.start + word.end) // 2 >= known]
        reply = replace(reply, full=reply.full or len(reply.ids) >= ask.max_new_tokens)
        return Hypothesis(tuple(words), reply.finish)


def budget(seconds: float) -> int:
    """Output tokens for `seconds` of audio, as the model's own route counts them."""
    return min(MOST_BUDGET, max(LEAST_BUDGET, math.ceil(seconds / NATIVE_S * MOST_BUDGET)))


def hotword_list(hotwords: tuple[str, ...]) -> str:
    """Hotwords as the route takes them apart again: by ASCII commas, so none may hold one."""
    return ",".join(word.replace(",", " ").strip() for word in hotwords if word.strip(" ,"))
