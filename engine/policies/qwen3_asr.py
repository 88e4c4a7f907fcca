"""Qwen3-ASR: a decoder-only model, prompted with text around one audio placeholder. PURE.

Everything is one string: hotwords and earlier text in the system turn, the audio in the user turn, then
the language header and the words that are already certain as the beginning of the answer. Those are
prefilled like any prompt, so a refresh costs the new words only.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from engine.contract import SAMPLE_RATE, Hypothesis, RecognitionTask, join
from engine.guards import GuardLimits

from .ladder import Rung, rung_of
from .serving import Ask, ModelFacts, Reply
from .text_words import estimated_words, readable

NATIVE_S = 1200.0
AUDIO_TOKENS_PER_S = 13.0
AUDIO = "<|audio_start|><|audio_pad|><|audio_end|>"
MARK = "<asr_text>"
CONTEXT_TOKENS = 65_536
TOKENS_PER_S = 10.0
"""Output that a second of speech can cause, in any language."""
SLACK = 16
HEADER = 6
"""Tokens of the language header, with some to spare."""
CONTEXT_CHARS = 600
"""Text before the window that goes into the system turn, newest last."""

LANGUAGES = {
    "ar": "Arabic",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "fa": "Persian",
    "fi": "Finnish",
    "fr": "French",
    "hi": "Hindi",
    "hu": "Hungarian",
    "id": "Indonesian",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "mk": "Macedonian",
    "ms": "Malay",
    "nl": "Dutch",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sv": "Swedish",
    "th": "Thai",
    "tl": "Filipino",
    "tr": "Turkish",
    "vi": "Vietnamese",
    "yue": "Cantonese",
    "zh": "Chinese",
}
"""Language codes as the contract has them, and the names the model writes and reads."""
_BY_NAME = {name.lower(): code for code, name in LANGUAGES.items()}
_HEADER = re.compile(r"\s*language\s+([^<\s][^<]*?)\s*(?:<asr_text>|$)")
_CONTROL = re.compile(r"<\|[^|<>]*\|>|<asr_text>")


LADDER = (
    Rung(context=True),
    Rung(context=False),
    Rung(context=False, temperature=0.1),
    Rung(context=False, temperature=0.2, repetition_penalty=1.1),
)


class Qwen3AsrServing:
    """A `ServingPolicy`; one instance a checkpoint."""

    def __init__(self, *, kv_bytes_per_token: int | None = None) -> None:
        self._facts = ModelFacts(
            native_s=NATIVE_S,
            audio_tokens_per_s=AUDIO_TOKENS_PER_S,
            context_tokens=CONTEXT_TOKENS,
            kv_bytes_per_token=kv_bytes_per_token,
            chunked_prefill=True,
            prefix_cache=True,
            word_times=False,
            languages=tuple(LANGUAGES),
        )

    @property
    def facts(self) -> ModelFacts:
        return self._facts

    def ask(self, task: RecognitionTask, language: str | None) -> Ask:
        if language is not None and language not in LANGUAGES:
            raise ValueError(f"language {language!r} is not one of the {len(LANGUAGES)} this model knows")
        rung = rung_of(LADDER, task.attempt)
        detects = language is None
        return Ask(
            max_new_tokens=budget(task) + (HEADER if detects else 0),
            guard=GuardLimits(audio_s=len(task.audio) / SAMPLE_RATE),
            text=prompt(task, language, context=rung.context),
            temperature=rung.temperature,
            repetition_penalty=rung.repetition_penalty,
            language=language,
            detects=detects,
        )

    def detection(self, task: RecognitionTask) -> Ask | None:
        """Needed where words are forced: they stand behind the header, which names the language."""
        if not task.prefix or task.language is not None:
            return None
        bare = replace(task, prefix=(), context="", hotwords=())
        return replace(self.ask(bare, None), max_new_tokens=HEADER)

    def heard(self, reply: Reply) -> tuple[str | None, float]:
        found = _HEADER.match(reply.text)
        # The model does not say how sure it is; a name it wrote counts as certain.
        code = _BY_NAME.get(found.group(1).lower()) if found else None
        return code, 1.0 if code else 0.0

    def astray(self, ask: Ask, reply: Reply) -> str | None:
        return None

    def read(self, task: RecognitionTask, ask: Ask, reply: Reply) -> Hypothesis:
        text, language, chance = reply.text, None, 0.0
        if ask.detects:
            language, chance = self.heard(reply)
            text = spoken(reply.text)
        text = readable(_CONTROL.sub("", text))
        return Hypothesis(tuple(estimated_words(text, task)), reply.finish, language, chance)


def prompt(task: RecognitionTask, language: str | None, *, context: bool = True) -> str:
    """The whole prompt; without a language the model begins its answer with one."""
    told = [", ".join(task.hotwords)] if task.hotwords else []
    if context and task.context.strip():
        told.append(_tail(task.context.strip()))
    system = clean("\n".join(told))
    answer = ""
    if language is not None:
        answer = f"language {LANGUAGES[language]}{MARK}{clean(join(task.prefix))}"
    return (
        f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{AUDIO}<|im_end|>\n"
        f"<|im_start|>assistant\n{answer}"
    )


def clean(text: str) -> str:
    """`text` without anything that the tokenizer would take for a control token."""
    return _CONTROL.sub("", text)


def budget(task: RecognitionTask) -> int:
    """Output tokens that the speech after the prefix can cause."""
    begin = max(task.prefix[-1].end, task.start) if task.prefix else task.start
    return math.ceil(max(task.end - begin, 0) / SAMPLE_RATE * TOKENS_PER_S) + SLACK


def spoken(text: str) -> str:
    """What stands behind the language header; without a complete header, nothing that belongs to one."""
    head, mark, rest = text.partition(MARK)
    if mark:
        return rest
    return "" if _HEADER.match(head) or "language".startswith(head.strip()) else head


def _tail(text: str) -> str:
    """The newest part of a text, from the beginning of a word where it has spaces."""
    if len(text) <= CONTEXT_CHARS:
        return text
    cut = text[-CONTEXT_CHARS:]
    head, space, rest = cut.partition(" ")
    return rest if space and len(head) < 40 else cut
