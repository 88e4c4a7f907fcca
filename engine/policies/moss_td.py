"""MOSS-Transcribe-Diarize on SGLang-Omni: words, times and local speakers in one marked-up output. PURE.

The output is `[start][S01]text[end][start][S02]text[end]`, seconds as plain decimals, and comes damaged in
every way: a missing end, an end that is also the next start, a tag with one digit, a cut last bracket.
Everything that can be read is kept; nothing that was said is dropped for a missing mark.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from engine.contract import SAMPLE_RATE, Hypothesis, RecognitionTask, Word
from engine.guards import GuardLimits

from .ladder import Rung, rung_of
from .serving import Ask, LanguageUntold, ModelFacts, Reply
from .text_words import estimated_words, readable

NATIVE_S = 5400.0
AUDIO_TOKENS_PER_S = 13.4
"""12.5 for the audio and the time markers among it."""
CONTEXT_TOKENS = 131_072
TOKENS_PER_S = 10.0
LEAST_BUDGET = 512
CONTEXT_CHARS = 600

INSTRUCTION = (
    "请将音频转写为文本，每一段需以起始时间戳和说话人编号（[S01]、[S02]、[S03]…）开头，"  # noqa: RUF001
    "正文为对应的语音内容，并在段末标注结束时间戳，以清晰标明该段语音范围。"  # noqa: RUF001
)
"""What makes the model write speakers and times: a prompt of ours replaces the default one, so it is sent
every time, with anything else behind it."""

_MARK = re.compile(r"\[\s*(?:(?P<time>\d+(?:\.\d*)?)|[Ss]\s*(?P<speaker>\d+))\s*\]")
_CUT = re.compile(r"\[\s*(?:[Ss]?\s*\d*(?:\.\d*)?)\s*$")
_CONTROL = re.compile(r"<\|(?:im_start|im_end|endoftext)\|>")
MARKUP = re.compile(r"\[\s*(?:\d+(?:\.\d*)?|[Ss]\s*\d+)\s*\]")


@dataclass(frozen=True, slots=True)
class Segment:
    """One stretch of one speaker; seconds from the audio's beginning, None where no mark says it."""

    text: str
    start: float | None
    end: float | None
    speaker: int | None


LADDER = (
    Rung(context=True),
    Rung(context=False),
    Rung(context=False, temperature=0.1),
    Rung(context=False, temperature=0.2, repetition_penalty=1.1),
)


class MossTdServing(LanguageUntold):
    """A `ServingPolicy`; one instance a checkpoint."""

    def __init__(self, *, kv_bytes_per_token: int | None = 114_688) -> None:
        self._facts = ModelFacts(
            native_s=NATIVE_S,
            audio_tokens_per_s=AUDIO_TOKENS_PER_S,
            context_tokens=CONTEXT_TOKENS,
            kv_bytes_per_token=kv_bytes_per_token,
            chunked_prefill=True,
            prefix_cache=True,
            word_times=False,
            forced_prefix=False,
            speaker_tags=True,
            pipeline="MossTranscribeDiarizePipelineConfig",
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
            max_new_tokens=budget(seconds),
            guard=GuardLimits(audio_s=seconds, markup=MARKUP),
            text=prompt(task, context=rung.context),
            temperature=rung.temperature,
            repetition_penalty=rung.repetition_penalty,
            language=language,
        )

    def read(self, task: RecognitionTask, ask: Ask, reply: Reply) -> Hypothesis:
        """Words with local tags. Those that the prefix holds already are left out by their times: the
        model cannot be made to begin with them."""
        seconds = len(task.audio) / SAMPLE_RATE
        segments = settle(parse(readable(_CONTROL.sub("", reply.text))), seconds)
        words: list[Word] = []
        for segment in segments:
            words += _words(segment, task)
        if task.prefix:
            known = task.prefix[-1].end
            words = [word for word in words if (word.start + word.end) // 2 >= known]
        return Hypothesis(tuple(words), reply.finish)


def prompt(task: RecognitionTask, *, context: bool = True) -> str:
    """The instruction, always, then what may help: hotwords, and the end of the text before the window."""
    parts = [INSTRUCTION]
    if task.hotwords:
        parts.append("热词：" + "，".join(task.hotwords))  # noqa: RUF001
    if context and task.context.strip():
        parts.append("上文：" + task.context.strip()[-CONTEXT_CHARS:])  # noqa: RUF001
    return "\n".join(parts)


def budget(seconds: float) -> int:
    """Output tokens for `seconds` of audio, clamped to what the context leaves."""
    wanted = max(LEAST_BUDGET, math.ceil(TOKENS_PER_S * seconds))
    room = CONTEXT_TOKENS - math.ceil(AUDIO_TOKENS_PER_S * seconds) - 1024
    if room < LEAST_BUDGET:
        raise ValueError(
            f"{seconds:.0f} s of audio leave no room for a transcript in {CONTEXT_TOKENS} positions"
        )
    return min(wanted, room)


def parse(output: str) -> list[Segment]:
    """Segments of any output, damaged or not; all its text is in them, in order."""
    segments: list[Segment] = []
    text, start, speaker = "", None, None
    waiting: float | None = None
    position = 0
    output = _CUT.sub("", output)
    for mark in _MARK.finditer(output):
        text += output[position : mark.start()]
        position = mark.end()
        if mark["time"] is not None:
            waiting = float(mark["time"])
            if text.strip():
                segments.append(Segment(text.strip(), start, waiting, speaker))
                # The next segment may lack a start of its own: then this end is the best guess.
                text, start = "", waiting
            else:
                start = waiting
        else:
            if text.strip():
                segments.append(Segment(text.strip(), start, None, speaker))
                text, start = "", None
            speaker = int(mark["speaker"])
    text += output[position:]
    if text.strip():
        segments.append(Segment(text.strip(), start, None, speaker))
    return segments


def settle(segments: list[Segment], seconds: float) -> list[Segment]:
    """Segments with times inside the audio, in order, none missing: a gap is shared between neighbours."""
    out: list[Segment] = []
    floor = 0.0
    for index, segment in enumerate(segments):
        start = floor if segment.start is None else min(max(segment.start, floor), seconds)
        following = next((s.start for s in segments[index + 1 :] if s.start is not None), None)
        end = segment.end if segment.end is not None else following
        end = min(max(seconds if end is None else end, start), seconds)
        out.append(replace(segment, start=start, end=end))
        floor = start if segment.end is None else end
    return out


def _words(segment: Segment, task: RecognitionTask) -> list[Word]:
    low = task.start + round((segment.start or 0.0) * SAMPLE_RATE)
    high = task.start + round((segment.end or 0.0) * SAMPLE_RATE)
    # Laid over the segment whatever the prefix says: words of the prefix are told apart by their times.
    free = replace(task, prefix=())
    tag = None if segment.speaker is None else f"S{segment.speaker:02d}"
    return [replace(word, tag=tag) for word in estimated_words(segment.text, free, low, high)]
