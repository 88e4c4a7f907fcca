"""MOSS-Transcribe-Diarize on SGLang-Omni: words, times and local speakers in one marked-up output. PURE.

The output is `[start][S01]text[end][start][S02]text[end]`, seconds as plain decimals (see `markup.py`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from engine.contract import SAMPLE_RATE, Hypothesis, RecognitionTask, Word
from engine.guards import GuardLimits

from .ladder import Rung, rung_of
from .markup import MARKUP, MarkupReader, Segment, parse, settle
from .serving import Ask, LanguageUntold, ModelFacts, Reply
from .text_words import apart, continued, laid_words

NATIVE_S = 5400.0
AUDIO_TOKENS_PER_S = 13.4
"""12.5 for the audio and the time markers among it."""
CONTEXT_TOKENS = 131_072
TOKENS_PER_S = 10.0
LEAST_BUDGET = 512
CONTEXT_CHARS = 600
GATHER = 12
"""Each prefill holds up the decoding of everybody: with 100 live streams 23 a second of three requests each
became 15 of six, and refreshes took 0.7 s at p95 instead of 1.0."""
WINDOW_S = 48.0
"""Who speaks is told by what else the window holds: with less, one person is two more often."""

INSTRUCTION = (
    "请将音频转写为文本，每一段需以起始时间戳和说话人编号（[S01]、[S02]、[S03]…）开头，"  # noqa: RUF001
    "正文为对应的语音内容，并在段末标注结束时间戳，以清晰标明该段语音范围。"  # noqa: RUF001
)
"""What makes the model write speakers and times: a prompt of ours replaces the default one, so it is sent
every time, with anything else behind it."""

LADDER = (
    Rung(context=True),
    Rung(context=False, budget=2.0),
    Rung(context=False, budget=2.0, temperature=0.1),
    Rung(context=False, budget=2.0, temperature=0.1, repetition_penalty=1.1),
    Rung(context=False, budget=2.0, temperature=0.1, repetition_penalty=1.1, split=True),
)
"""0.1 is what ends the loops of some GPUs; a penalty is heeded by SGLang-Omni from 0.1.9 on."""


class MossTdServing(LanguageUntold):
    """A `ServingPolicy`; one instance a checkpoint."""

    def __init__(self, *, kv_bytes_per_token: int | None = 114_688) -> None:
        self._facts = ModelFacts(
            native_s=NATIVE_S,
            audio_tokens_per_s=AUDIO_TOKENS_PER_S,
            context_tokens=CONTEXT_TOKENS,
            kv_bytes_per_token=kv_bytes_per_token,
            chunked_prefill=True,
            # A prompt begins with its audio, and that of a growing window is new each time. What is kept for
            # nothing has to be thrown out again at every prefill, by the thread that all others wait for.
            prefix_cache=False,
            word_times=False,
            forced_prefix=False,
            speaker_tags=True,
            recording_s=NATIVE_S,
            window_s=WINDOW_S,
            budget_per_s=TOKENS_PER_S,
            tries=len(LADDER),
            pipeline="MossTranscribeDiarizePipelineConfig",
            gather=GATHER,
            weights_gib=1.6,
        )

    @property
    def facts(self) -> ModelFacts:
        return self._facts

    def ask(self, task: RecognitionTask, language: str | None) -> Ask:
        """Raises `ValueError` for audio that leaves no room for its own transcript."""
        rung = rung_of(LADDER, task.attempt)
        seconds = len(task.audio) / SAMPLE_RATE
        return Ask(
            max_new_tokens=budget(seconds, rung.budget),
            guard=GuardLimits(audio_s=seconds, markup=MARKUP),
            follow=Follower,
            split=rung.split,
            text=prompt(task, context=rung.context),
            temperature=rung.temperature,
            repetition_penalty=rung.repetition_penalty,
            language=language,
        )

    def read(self, task: RecognitionTask, ask: Ask, reply: Reply) -> Hypothesis:
        """Words with local tags. Those that the prefix holds already are left out: the model cannot be made
        to begin with them."""
        seconds = len(task.audio) / SAMPLE_RATE
        words: list[Word] = []
        for segment in settle(parse(reply.text), seconds):
            words += _words(segment, task)
        return Hypothesis(continued(words, task.prefix), reply.finish)


def prompt(task: RecognitionTask, *, context: bool = True) -> str:
    """The instruction, always, then what may help: hotwords, and the end of the text before the window."""
    parts = [INSTRUCTION]
    if task.hotwords:
        parts.append("热词：" + "，".join(task.hotwords))  # noqa: RUF001
    if context and task.context.strip():
        parts.append("上文：" + task.context.strip()[-CONTEXT_CHARS:])  # noqa: RUF001
    return "\n".join(parts)


class Follower:
    """How far an output has come, by its newest time mark."""

    def __init__(self) -> None:
        self._reader = MarkupReader()
        self._read = 0

    def reached(self, text: str) -> float | None:
        """Seconds of the audio that the output `text`, as long as it is by now, has behind it."""
        self._reader.feed(text[self._read :])
        self._read = len(text)
        return self._reader.reached


def budget(seconds: float, factor: float = 1.0) -> int:
    """Output tokens for `seconds` of audio, clamped to what the context leaves."""
    wanted = math.ceil(factor * max(LEAST_BUDGET, math.ceil(TOKENS_PER_S * seconds)))
    room = CONTEXT_TOKENS - math.ceil(AUDIO_TOKENS_PER_S * seconds) - 1024
    if room < LEAST_BUDGET:
        raise ValueError(
            f"{seconds:.0f} s of audio leave no room for a transcript in {CONTEXT_TOKENS} positions"
        )
    return min(wanted, room)


def _words(segment: Segment, task: RecognitionTask) -> list[Word]:
    low = task.start + round((segment.start or 0.0) * SAMPLE_RATE)
    high = task.start + round((segment.end or 0.0) * SAMPLE_RATE)
    # Laid over the segment whatever the prefix says: words of the prefix are told apart by their times.
    free = replace(task, prefix=())
    tag = None if segment.speaker is None else f"S{segment.speaker:02d}"
    return [replace(word, tag=tag) for word in apart(laid_words(segment.text, free, low, high))]
