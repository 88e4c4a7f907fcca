"""Segments as a transcript people read: text, JSON, SRT, WebVTT. Pure; server and client share it.

Takes the newest revision of every segment, in order. Only committed words are rendered: a partial is no
transcript.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET

from .messages import Segment, Word

FORMATS = ("text", "json", "srt", "vtt")

PARAGRAPH_MS = 1_500
"""A silence this long between two segments starts a new paragraph."""
LINE_COLUMNS = 42
CUE_LINES = 2
CUE_MS = 6_000
CUE_PAUSE_MS = 700
SHORTEST_CUE_MS = 1_000
"""A cue stays this long where the next one allows: shorter cannot be read."""

_SENTENCE_ENDS = (".", "!", "?", "\N{HORIZONTAL ELLIPSIS}", "\u3002", "\uff01", "\uff1f")


@dataclass(frozen=True, slots=True)
class Cue:
    """Lines shown together from `start_ms` to `end_ms`."""

    start_ms: int
    end_ms: int
    lines: tuple[str, ...]
    speaker: str | None
    """How the speaker is called."""


def render(segments: Sequence[Segment], format: str, **extra: Any) -> str:
    """The transcript in one of `FORMATS`; `extra` goes into the JSON document. Ends with a line feed."""
    match format:
        case "text":
            return text(segments)
        case "json":
            return document(segments, **extra)
        case "srt":
            return srt(cues(segments))
        case "vtt":
            return vtt(cues(segments))
    raise ValueError(f"unknown transcript format {format!r}: use one of {', '.join(FORMATS)}")


def joined(words: Iterable[Word]) -> str:
    """How the words read, without outer space."""
    return "".join(f" {w.text}" if spaced(w) else w.text for w in words).strip()


def speaker_name(segment: Segment) -> str | None:
    """How the speaker of a segment is called; None while nobody knows who it is."""
    if segment.name is not UNSET:
        return segment.name
    return None if segment.speaker is None else f"Speaker {segment.speaker}"


def spaced(word: Word) -> bool:
    """Whether a space stands before the word."""
    return word.space is not False


def text(segments: Sequence[Segment]) -> str:
    """Paragraphs, broken where the speaker changes or nobody spoke for long."""
    paragraphs: list[list[Word]] = []
    last: Segment | None = None
    for segment in segments:
        if not segment.words:
            continue
        follows = (
            last is not None
            and last.speaker == segment.speaker
            and segment.words[0].start_ms - last.words[-1].end_ms < PARAGRAPH_MS
        )
        if not follows:
            paragraphs.append([])
        paragraphs[-1] += segment.words
        last = segment
    return "".join(f"{joined(words)}\n" for words in paragraphs)


def document(segments: Sequence[Segment], **extra: Any) -> str:
    """One JSON object: `extra`, the text, and the segments without their wire bookkeeping."""
    rows = []
    for segment in segments:
        row = msgspec.to_builtins(segment)
        rows.append({k: v for k, v in row.items() if k not in {"type", "seq", "rev", "partial"}})
    body = {**extra, "text": text(segments).strip(), "segments": rows}
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode() + "\n"


def cues(segments: Sequence[Segment]) -> list[Cue]:
    """Cues of at most two lines and six seconds, broken at pauses and sentence ends."""
    found = [_cue(words, speaker_name(segment)) for segment in segments for words in _groups(segment.words)]
    starts = [cue.start_ms for cue in found[1:]]
    limits = [*starts, found[-1].end_ms + SHORTEST_CUE_MS] if found else []
    return [
        Cue(c.start_ms, max(c.end_ms, min(c.start_ms + SHORTEST_CUE_MS, limit)), c.lines, c.speaker)
        for c, limit in zip(found, limits, strict=True)
    ]


def _groups(words: Sequence[Word]) -> Iterator[list[Word]]:
    group: list[Word] = []
    for word in words:
        if group and (
            word.end_ms - group[0].start_ms > CUE_MS
            or word.start_ms - group[-1].end_ms >= CUE_PAUSE_MS
            or len(_lines([*group, word])) > CUE_LINES
            or (group[-1].text.endswith(_SENTENCE_ENDS) and len(_lines(group)) == CUE_LINES)
        ):
            yield group
            group = []
        group.append(word)
    if group:
        yield group


def _cue(words: Sequence[Word], speaker: str | None) -> Cue:
    return Cue(words[0].start_ms, max(words[-1].end_ms, words[0].start_ms + 1), _lines(words), speaker)


def _lines(words: Sequence[Word]) -> tuple[str, ...]:
    lines: list[list[Word]] = []
    used = 0
    for word in words:
        width = columns(word.text) + spaced(word)
        if not lines or used + width > LINE_COLUMNS:
            lines.append([])
            used = 0
        lines[-1].append(word)
        used += width
    return tuple(joined(line) for line in lines)


def columns(line: str) -> int:
    """Width on a screen: East Asian wide characters take two columns."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def srt(cues: Sequence[Cue]) -> str:
    """SubRip; a speaker stands before the first line."""
    blocks = []
    for number, cue in enumerate(cues, 1):
        body = "\n".join(cue.lines)
        named = f"{cue.speaker}: {body}" if cue.speaker else body
        blocks.append(f"{number}\n{_time(cue.start_ms, ',')} --> {_time(cue.end_ms, ',')}\n{named}\n")
    return "\n".join(blocks)


def vtt(cues: Sequence[Cue]) -> str:
    """WebVTT; a speaker is a voice tag. Text is escaped, so no arrow can stand in it."""
    blocks = ["WEBVTT\n"]
    for cue in cues:
        body = "\n".join(map(_escaped, cue.lines))
        named = f"<v {_escaped(cue.speaker)}>{body}" if cue.speaker else body
        blocks.append(f"{_time(cue.start_ms, '.')} --> {_time(cue.end_ms, '.')}\n{named}\n")
    return "\n".join(blocks)


def _time(ms: int, point: str) -> str:
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{ms:03}"


def _escaped(line: str) -> str:
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
