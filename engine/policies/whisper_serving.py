"""The Whisper policy as a serving mechanism asks for it: requests and replies in token ids. PURE."""

from __future__ import annotations

import math
from dataclasses import replace

from engine.align import timed_words
from engine.contract import SAMPLE_RATE, Hypothesis, Priority, RecognitionTask
from engine.guards import GuardLimits
from engine.spread import spread_frames

from .serving import Ask, ModelFacts, Reply
from .whisper import POSITIONS, WINDOW_S, Output, Plan, WhisperPolicy

FRAME_S = 0.02
"""Time one encoder position stands for."""
_HEADER = 3
"""Tokens a reply spends on language, task and time mode where it is left to find the language."""


_LASTING = (Priority.FINAL, Priority.BATCH)
"""What stays as text is decoded in the full window: with tiny.en on 60 utterances 10.9 % of words are wrong
there, 11.8 % with 6 s of silence (10 s at least), 11.3 % with 8 s (15), 11.5 % with 10 s (20)."""


class WhisperServing:
    """A `ServingPolicy` around one vocabulary."""

    def __init__(self, policy: WhisperPolicy, *, kv_bytes_per_token: int | None = None) -> None:
        self._policy = policy
        self._facts = ModelFacts(
            native_s=WINDOW_S,
            audio_tokens_per_s=1.0 / FRAME_S,
            context_tokens=POSITIONS,
            kv_bytes_per_token=kv_bytes_per_token,
            chunked_prefill=False,
            prefix_cache=False,
            word_times=True,
            languages=policy.languages,
            translates=policy.multilingual,
        )

    @property
    def facts(self) -> ModelFacts:
        return self._facts

    def ask(self, task: RecognitionTask, language: str | None) -> Ask:
        """Raises `ValueError` for unknown languages and for prefixes that leave no room for output."""
        plan = self._policy.plan(task, language)
        detects = language is None and self._policy.multilingual and not _settled(task)
        ids = self._open_prompt(plan) if detects else tuple(plan.prompt)
        room = POSITIONS - len(ids)
        return Ask(
            max_new_tokens=min(plan.budget + (_HEADER if detects else 0) + 1, room),
            guard=GuardLimits(audio_s=len(task.audio) / SAMPLE_RATE),
            input_ids=ids,
            temperature=plan.rung.temperature,
            repetition_penalty=plan.rung.repetition_penalty,
            custom=({"window_s": WINDOW_S} if task.priority in _LASTING else {})
            | ({"goes_on": 1.0} if plan.goes_on else {}),
            language=language,
            detects=detects,
            logprobs=detects,
        )

    def detection(self, task: RecognitionTask) -> Ask | None:
        """Needed where words are forced, or the task is not the model's to choose: neither can stand before a
        language that is still to be found."""
        if not (self._policy.multilingual and _settled(task) and task.language is None):
            return None
        bare = replace(task, prefix=(), translate=False, context="", hotwords=())
        return replace(self.ask(bare, None), max_new_tokens=1)

    def heard(self, reply: Reply) -> tuple[str | None, float]:
        name = self._policy.tokens.name(reply.ids[0]) if reply.ids else None
        language = self._policy.language_of(name) if name else None
        if language not in self._policy.languages:
            return None, 0.0
        return language, math.exp(reply.logprobs[0]) if reply.logprobs else 0.0

    def astray(self, ask: Ask, reply: Reply) -> str | None:
        """Left to itself the model may translate; where our own model runs it cannot."""
        if not ask.detects or self._policy.special.translate not in reply.ids[:_HEADER]:
            return None
        return self.heard(reply)[0]

    def read(self, task: RecognitionTask, ask: Ask, reply: Reply) -> Hypothesis:
        language, chance = self.heard(reply) if ask.detects else (None, 0.0)
        known = len(reply.logprobs) == len(reply.ids) > 0
        output = Output(
            ids=tuple(token for token in reply.ids if token < self._policy.special.end),
            mean_logprob=sum(reply.logprobs) / len(reply.ids) if known else 0.0,
            no_speech=0.0,
            full=reply.full,
        )
        verdict = self._policy.judge(output)
        units = self._policy.units(verdict.ids)
        begin = min(max(task.prefix[-1].end, task.start) if task.prefix else task.start, task.end)
        frames = spread_frames(task.audio, begin - task.start, units, len(verdict.ids))
        words = timed_words(units, frames, (), task.audio, (begin, task.end))
        return Hypothesis(tuple(words), verdict.finish, language, chance)

    def _open_prompt(self, plan: Plan) -> tuple[int, ...]:
        """The prompt up to and with the start token: the model goes on with language, task and time mode."""
        start = plan.head.index(self._policy.special.start)
        return plan.head[: start + 1]


def _settled(task: RecognitionTask) -> bool:
    """Whether the request says what comes behind the language."""
    return bool(task.prefix) or task.translate
