"""Fun-ASR on SGLang-Omni: short clips, hotwords, plain text. PURE."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from engine.contract import SAMPLE_RATE, Hypothesis, RecognitionTask
from engine.guards import GuardLimits, weight

from .ladder import Rung, rung_of
from .serving import Ask, LanguageUntold, ModelFacts, Reply
from .text_words import apart, continued, estimated_words, readable

NATIVE_S = 30.0
AUDIO_TOKENS_PER_S = 2.1
MOST_BUDGET = 200
"""The route refuses more, however dense the speech."""
LEAST_BUDGET = 16
DENSE = 3.5
"""Letters a token, a character of a script without spaces counting three, from which an output is taken for
one that filled its budget."""
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
        """Words behind the prefix; what the output repeats of it is left out."""
        text = readable(_CONTROL.sub("", reply.text))
        words = apart(estimated_words(text, replace(task, prefix=())))
        # Its route does not tell how an output ended, and its words have no times of their own.
        full = reply.full or (not reply.told and weight(text, ask.guard) >= DENSE * ask.max_new_tokens)
        return Hypothesis(continued(words, task.prefix), replace(reply, full=full).finish)


def budget(seconds: float) -> int:
    """Output tokens for `seconds` of audio, as the model's own route counts them."""
    return min(MOST_BUDGET, max(LEAST_BUDGET, math.ceil(seconds / NATIVE_S * MOST_BUDGET)))


def hotword_list(hotwords: tuple[str, ...]) -> str:
    """Hotwords as the route takes them apart again: by ASCII commas, so none may hold one."""
    return ",".join(word.replace(",", " ").strip() for word in hotwords if word.strip(" ,"))
