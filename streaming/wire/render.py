"""Segments as a transcript people read (text, JSON, SRT, WebVTT) or score (RTTM, CTM, STM). Pure; server and
client share it.

Takes the newest revision of every segment, in order of time (`by_time`). Only committed words are rendered: a
partial is no transcript.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import msgspec
from msgspec import UNSET

from .cues import Cue, blocks, timed
from .lines import joined as joined
from .messages import Segment, Word
from .names import plain


@dataclass(frozen=True, slots=True)
class Format:
    """How a transcript is written down."""

    ending: str
    """Of a file's name."""
    media: str
    """Media type."""


FORMATS = {
    "text": Format("txt", "text/plain; charset=utf-8"),
    "json": Format("json", "application/json"),
    "srt": Format("srt", "application/x-subrip; charset=utf-8"),
    "vtt": Format("vtt", "text/vtt; charset=utf-8"),
    "rttm": Format("rttm", "text/plain; charset=utf-8"),
    "ctm": Format("ctm", "text/plain; charset=utf-8"),
    "stm": Format("stm", "text/plain; charset=utf-8"),
}
"""By name."""

BY_ENDING = {format.ending: name for name, format in FORMATS.items()}

_BREAKS = frozenset({"Cc", "Zl", "Zp"})
_QUOTED = str.maketrans("<>", "\u2039\u203a")

UNKNOWN = "Unknown"
"""Who speaks where others are told apart and this one is not."""

NEAR_MS = 500
"""A word so near to a turn belongs to it: the times of words are not that exact."""

PARAGRAPH_MS = 1_500
"""A silence this long between two segments starts a new paragraph."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Speech of one person, or of one whom nobody knows, without a long silence in it."""

    speaker: int | None
    name: str | None
    """How the speaker is called."""
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """One person is heard, with words or without."""

    start_ms: int
    end_ms: int
    speaker: int | None
    """None where nobody knows who it is."""
    name: str | None
    """As it was given; None: none was."""


def by_time(segments: Iterable[Segment]) -> list[Segment]:
    """In order of their beginning, and what begins together in order of its words, track by track."""
    return sorted(segments, key=lambda s: (s.start_ms, _channel(s), s.first_word, s.id))


def render(segments: Sequence[Segment], format: str, *, recording: str = "recording", **extra: Any) -> str:
    """The transcript in one of `FORMATS`, empty or ending with a line feed. `recording` is what the formats
    for scoring call the audio; `extra` goes into the JSON document."""
    match format:
        case "text":
            return text(segments)
        case "json":
            return document(segments, **extra)
        case "srt":
            return srt(cues(segments))
        case "vtt":
            return vtt(cues(segments))
        case "rttm":
            return rttm(segments, recording)
        case "ctm":
            return ctm(segments, recording)
        case "stm":
            return stm(segments, recording)
    raise ValueError(f"unknown transcript format {format!r}: use one of {', '.join(FORMATS)}")


def speaker_name(segment: Segment) -> str | None:
    """How the speaker of a segment is called, on one line; None while nobody knows who it is."""
    return _called(segment.speaker, None if segment.name is UNSET else segment.name)


def _called(speaker: int | None, name: str | None) -> str | None:
    if name is not None:
        return plain(name)
    return None if speaker is None else f"Speaker {speaker}"


def paragraphs(segments: Sequence[Segment]) -> list[Paragraph]:
    """Broken where the speaker changes or nobody spoke for long."""
    found: list[tuple[Segment, list[Word]]] = []
    last: Segment | None = None
    for segment in segments:
        if not segment.words:
            continue
        follows = (
            last is not None
            and (last.speaker, last.track) == (segment.speaker, segment.track)
            and segment.words[0].start_ms - last.words[-1].end_ms < PARAGRAPH_MS
        )
        if not follows:
            found.append((segment, []))
        found[-1][1].extend(segment.words)
        last = segment
    return [Paragraph(first.speaker, speaker_name(first), tuple(words)) for first, words in found]


def text(segments: Sequence[Segment], *, named: bool = True) -> str:
    """Paragraphs; before each, where speakers are known and `named` is asked for, who speaks."""
    found = paragraphs(segments)
    if not named or all(p.name is None for p in found):
        return "".join(f"{_line(joined(p.words))}\n" for p in found)
    return "".join(f"{p.name or UNKNOWN}: {_line(joined(p.words))}\n" for p in found)


def document(segments: Sequence[Segment], **extra: Any) -> str:
    """One JSON object: `extra`, the bare text, and the segments without their wire bookkeeping."""
    rows = []
    for segment in segments:
        row = msgspec.to_builtins(segment)
        rows.append({k: v for k, v in row.items() if k not in {"type", "seq", "rev", "partial"}})
    body = {**extra, "text": text(segments, named=False).strip(), "segments": rows}
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode() + "\n"


def cues(segments: Sequence[Segment]) -> list[Cue]:
    """As pop-on captions, in order of time: those of people who speak at once overlap."""
    spoken = [(s.words, speaker_name(s)) for s in segments if s.words]
    # Without a name of its own a cue would read as the last one's that has one.
    nobody = UNKNOWN if any(name for _, name in spoken) else None
    return timed([cue for words, name in spoken for cue in blocks(words, name or nobody)])


def srt(cues: Sequence[Cue]) -> str:
    """SubRip; a speaker stands before the first line. It knows tags and arrows and no way to escape them:
    what they are made of is written as quotation marks."""
    blocks = []
    for number, cue in enumerate(cues, 1):
        body = "\n".join(map(_line, cue.lines))
        named = (f"{cue.speaker}: {body}" if cue.speaker else body).translate(_QUOTED)
        blocks.append(f"{number}\n{_time(cue.start_ms, ',')} --> {_time(cue.end_ms, ',')}\n{named}\n")
    return "\n".join(blocks)


def vtt(cues: Sequence[Cue]) -> str:
    """WebVTT; a speaker is a voice tag. Text is escaped, so no arrow can stand in it."""
    return "\n".join([VTT, *map(vtt_cue, cues)])


VTT = "WEBVTT\n"
"""How a file of WebVTT begins; an empty line stands before each cue."""


def vtt_cue(cue: Cue) -> str:
    """One cue of WebVTT."""
    body = "\n".join(_escaped(_line(line)) for line in cue.lines)
    named = f"<v {_escaped(cue.speaker)}>{body}" if cue.speaker else body
    return f"{_time(cue.start_ms, '.')} --> {_time(cue.end_ms, '.')}\n{named}\n"


def _time(ms: int, point: str) -> str:
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{ms:03}"


def _line(text: str) -> str:
    """Text on one line, whatever it holds."""
    shown = (" " if unicodedata.category(c) in _BREAKS else c for c in text)
    return " ".join("".join(shown).split())


def _escaped(line: str) -> str:
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def rttm(segments: Sequence[Segment], recording: str, turns: Sequence[Turn] = ()) -> str:
    """NIST RTTM: who speaks when. `turns` are what the voices alone told; where there is none near, a segment
    is a turn, from the first such word to the last. Whoever is not known is the speaker `Unknown`. The
    channel is the track."""
    heard = _stretches(turns)
    rows = [(t.start_ms, t.end_ms, 1, _field(_called(t.speaker, t.name) or UNKNOWN)) for t in turns]
    for s in _spoken(segments):
        for near, alike in groupby(s.words, lambda word: _near(heard, word)):
            words = list(alike)
            if not near:
                rows.append((words[0].start_ms, words[-1].end_ms, _channel(s), _who(s)))
    return "".join(
        f"SPEAKER {_field(recording)} {channel} {_seconds(start)} {_seconds(end - start)}"
        f" <NA> <NA> {who} <NA> <NA>\n"
        for start, end, channel, who in sorted(rows, key=lambda row: (row[0], row[2]))
    )


def called(rttm: str, recording: str) -> str:
    """The same RTTM, its recording called `recording`."""
    rows = [line.split(" ") for line in rttm.splitlines()]
    return "".join(" ".join([row[0], _field(recording), *row[2:]]) + "\n" for row in rows)


def _stretches(turns: Iterable[Turn]) -> list[tuple[int, int]]:
    """Where anybody is heard, with `NEAR_MS` before and after, in order and apart."""
    found: list[tuple[int, int]] = []
    for turn in sorted(turns, key=lambda turn: turn.start_ms):
        start, end = turn.start_ms - NEAR_MS, turn.end_ms + NEAR_MS
        if found and start <= found[-1][1]:
            start, end = found[-1][0], max(found.pop()[1], end)
        found.append((start, end))
    return found


def _near(heard: Sequence[tuple[int, int]], word: Word) -> bool:
    at = bisect_right(heard, word.end_ms, key=lambda stretch: stretch[0]) - 1
    return at >= 0 and word.start_ms < heard[at][1]


def stm(segments: Sequence[Segment], recording: str) -> str:
    """NIST STM: who says what, when; a segment a line. The channel is the track. Angle
    brackets before a text would hold its label: they are written as quotation marks."""
    return "".join(
        f"{_field(recording)} {_channel(s)} {_who(s)} {_seconds(s.words[0].start_ms)}"
        f" {_seconds(s.words[-1].end_ms)} {_line(joined(s.words)).translate(_QUOTED)}\n"
        for s in _spoken(segments)
    )


def ctm(segments: Sequence[Segment], recording: str) -> str:
    """NIST CTM: every word with its time and confidence, channel by channel. The channel is the track; there
    is no place for a speaker."""
    rows = [(_channel(s), word) for s in _spoken(segments) for word in s.words]
    rows.sort(key=lambda row: (row[0], row[1].start_ms))
    return "".join(
        f"{_field(recording)} {channel} {_seconds(word.start_ms)} {_seconds(word.end_ms - word.start_ms)}"
        f" {_field(word.text)}{'' if word.confidence is UNSET else f' {word.confidence:.3f}'}\n"
        for channel, word in rows
    )


def _spoken(segments: Iterable[Segment]) -> Iterator[Segment]:
    return (segment for segment in segments if segment.words)


def _channel(segment: Segment) -> int:
    return 1 if segment.track is UNSET else segment.track + 1


def _who(segment: Segment) -> str:
    return _field(speaker_name(segment) or UNKNOWN)


def _seconds(ms: int) -> str:
    return f"{ms // 1000}.{ms % 1000:03}"


def _field(value: str) -> str:
    """One field of a line whose fields are divided by spaces, and which is a comment behind `;;`."""
    return "_".join(_line(value).split()).lstrip(";") or "_"
