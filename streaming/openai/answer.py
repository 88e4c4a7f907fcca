"""What a session said, as OpenAI's answers have it. Pure."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, UnsetType

from streaming.dialects.openai_shapes import letters
from streaming.kept.log import Log
from streaming.kept.transcripts import export
from streaming.wire.lines import flowing, joined
from streaming.wire.messages import Segment, Word
from streaming.wire.telling import Telling

from .form import Wanted

_LANGUAGES = (
    "ar arabic bg bulgarian ca catalan cs czech cy welsh da danish de german el greek en english es spanish"
    " et estonian fa persian fi finnish fr french he hebrew hi hindi hr croatian hu hungarian id indonesian"
    " it italian ja japanese ko korean lt lithuanian lv latvian ms malay nl dutch no norwegian pl polish"
    " pt portuguese ro romanian ru russian sk slovak sl slovenian sr serbian sv swedish ta tamil th thai"
    " tl tagalog tr turkish uk ukrainian ur urdu vi vietnamese zh chinese"
)
_PAIRS = _LANGUAGES.split()
_NAMES = dict(zip(_PAIRS[::2], _PAIRS[1::2], strict=True))
"""verbose_json names languages in English; others keep their code."""


@dataclass(frozen=True, slots=True)
class Told:
    """What is known without the words."""

    translated: bool
    language: str | None
    """Where none is heard: what the client said, or the only one there is."""

    @property
    def task(self) -> str:
        return "translate" if self.translated else "transcribe"


def answer(log: Log, wanted: Wanted, session: str, told: Told) -> dict[str, Any] | str:
    """The body: JSON, or text as it is."""
    if wanted.format == "text":
        return text_of(log) + "\n"
    if wanted.format in ("srt", "vtt"):
        return export(log, wanted.format, session)
    base = {"text": text_of(log), "usage": usage(log)}
    if wanted.format == "json":
        return base
    if wanted.format == "diarized_json":
        return {"task": told.task, "duration": seconds_of(log), **base, "segments": diarized(log)}
    return {"task": told.task, "duration": seconds_of(log), **base, **_verbose(log, wanted, told)}


def text_of(log: Log) -> str:
    """All committed words, as they read."""
    segments = sorted(spoken(log), key=lambda s: s.first_word)
    return joined([word for segment in segments for word in segment.words]).strip()


def seconds_of(log: Log) -> float:
    receipt = log.receipt
    return 0.0 if receipt is None else receipt.duration_ms / 1000


def usage(log: Log) -> dict[str, Any]:
    return {"type": "duration", "seconds": math.ceil(seconds_of(log))}


def spoken(log: Log) -> list[Segment]:
    return [segment for segment in log.segments() if segment.words]


def diarized(log: Log) -> list[dict[str, Any]]:
    """Segments with their speakers: letters, and `?` where nobody knows."""
    return [
        {
            "type": "transcript.text.segment",
            "id": f"seg_{segment.id}",
            "start": segment.start_ms / 1000,
            "end": segment.end_ms / 1000,
            "text": segment.text,
            "speaker": segment.name if segment.name is not UNSET else letters(segment.speaker),
        }
        for segment in spoken(log)
    ]


def _verbose(log: Log, wanted: Wanted, told: Told) -> dict[str, Any]:
    segments = spoken(log)
    known: Sequence[str | UnsetType] = [s.language for s in segments if s.language is not UNSET]
    code = str(max(known, key=known.count)) if known else told.language or ""
    code = "en" if told.translated else code
    found: dict[str, Any] = {"language": _NAMES.get(code, code)}
    if wanted.segments:
        found["segments"] = [_segment(number, segment) for number, segment in enumerate(segments)]
    if wanted.words:
        found["words"] = [
            {"word": word.text, "start": word.start_ms / 1000, "end": word.end_ms / 1000}
            for segment in segments
            for word in segment.words
        ]
    return found


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    written = segment.text.encode()
    return {
        "id": number,
        "seek": 0,
        "start": segment.start_ms / 1000,
        "end": segment.end_ms / 1000,
        "text": f" {segment.text}",
        "tokens": [],
        "temperature": 0.0,
        "avg_logprob": _logprob(segment.words),
        "compression_ratio": round(len(written) / len(zlib.compress(written)), 3),
        "no_speech_prob": 0.0,
    }


def _logprob(words: Sequence[Word]) -> float:
    """Mean of the words' own confidences, as logarithms; 0 where the engine gives none."""
    known = [word.confidence for word in words if isinstance(word.confidence, float)]
    return round(sum(math.log(max(c, 1e-6)) for c in known) / len(known), 4) if known else 0.0


class Deltas:
    """Committed words as text that only grows."""

    def __init__(self) -> None:
        self._telling = Telling()
        self.text = ""

    def take(self, segment: Segment) -> str:
        """What the segment adds; empty where it adds nothing."""
        words = self._telling.tell(segment)
        delta = flowing(words) if self.text else joined(words)
        self.text += delta
        return delta
