"""Words as pop-on captions: blocks of a line or two that come and go whole. Pure.

The numbers are those of broadcasters and streaming services (BBC, Netflix): two lines of 42 columns, fewer
where characters are wide; from 5/6 s to 7 s; twenty columns a second where the speaker leaves the time; a
block may stay 1.5 s longer than what it says; gaps of less than a second are closed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from .lines import columns, fill, joined
from .messages import Word

LINE_COLUMNS = 42
_WIDE_COLUMNS = 32
_KANA_COLUMNS = 26
CUE_LINES = 2
SHORTEST_MS = 834
LONGEST_MS = 7_000
COLUMNS_A_SECOND = 20
OVERHANG_MS = 1_500
PAUSE_MS = 700
"""Nothing stands together that was said with so much silence between."""
_GAP_MS = 1_000

_KANA = re.compile("[\u3041-\u30ff]")
_SENTENCE = re.compile(r".*[.!?…。！？][\"'”’»)\]」』）]*", re.DOTALL)  # noqa: RUF001
_CLAUSE = re.compile(r".*[,;:—–、，；：][\"'”’»)\]」』）]*", re.DOTALL)  # noqa: RUF001
# A line is read as one: it ends before these words,
_BEFORE = re.compile(
    "and|but|or|nor|so|yet|because|although|though|while|when|where|if|unless|until|since|that|which|who|whom"
    "|whose|than|as|about|above|across|after|against|along|among|around|at|before|behind|below|beneath|beside"
    "|between|beyond|by|down|during|except|for|from|in|inside|into|like|near|of|off|on|onto|out|outside|over"
    "|past|through|to|toward|towards|under|up|upon|with|within|without"
)
# and never behind one that holds on to the next, nor behind those above.
_HELD = re.compile(
    "an?|the|my|your|his|her|its|our|their|this|these|those|some|any|no|every|each|i|you|he|she|it|we|they|is"
    "|are|was|were|be|been|am|do|does|did|have|has|had|will|would|can|could|shall|should|may|might|must|not"
    "|very|mr|mrs|ms|dr"
)
_WORD = re.compile(r"\w+(?:['’]\w+)?")  # noqa: RUF001


@dataclass(frozen=True, slots=True)
class Cue:
    """Lines shown together from `start_ms` to `end_ms`."""

    start_ms: int
    end_ms: int
    lines: tuple[str, ...]
    speaker: str | None
    """How the speaker is called; the first line leaves room for it."""


def blocks(words: Sequence[Word], speaker: str | None) -> list[Cue]:
    """What one person says, as cues from their first word to the end of their last."""
    return [cue for _, cue in counted(words, speaker)]


def counted(words: Sequence[Word], speaker: str | None) -> Iterator[tuple[int, Cue]]:
    """The same, each with how many words it holds. More words behind these change the last one alone."""
    limit = _limit(words)
    lead = min(limit // 2, columns(speaker) + 2) if speaker else 0
    for some in _blocks(words, limit, lead):
        lines = tuple(map(joined, _lines(some, limit, lead)))
        end_ms = max(some[-1].end_ms, some[0].start_ms + 1)
        yield len(some), Cue(some[0].start_ms, end_ms, lines, speaker)


def timed(cues: Sequence[Cue]) -> list[Cue]:
    """The cues of a recording, in order of time, each as long as reading takes where there is room for it."""
    ordered = sorted(cues, key=lambda cue: cue.start_ms)
    nexts = [next.start_ms for next in ordered[1:]]
    return [replace(cue, end_ms=ending(cue, at)) for cue, at in zip_longest(ordered, nexts)]


def ending(cue: Cue, next_ms: int | None) -> int:
    """Until when the cue is shown if the next begins at `next_ms`; None: there is none."""
    reading = -(-sum(map(columns, cue.lines)) * 1000 // COLUMNS_A_SECOND)
    end = max(cue.end_ms, cue.start_ms + max(SHORTEST_MS, reading))
    if next_ms is not None and next_ms - end < _GAP_MS:
        end = next_ms
    end = min(end, cue.end_ms + OVERHANG_MS, max(cue.end_ms, cue.start_ms + LONGEST_MS))
    return max(cue.end_ms, end if next_ms is None else min(end, next_ms))


def _limit(words: Sequence[Word]) -> int:
    text = "".join(word.text for word in words)
    if _KANA.search(text):
        return _KANA_COLUMNS
    return _WIDE_COLUMNS if columns(text) > len(text) else LINE_COLUMNS


def _blocks(words: Sequence[Word], limit: int, lead: int) -> Iterator[Sequence[Word]]:
    at = 0
    while at < len(words):
        end = at + 1
        while end < len(words) and _together(words[at : end + 1], limit, lead):
            end += 1
        pause = end == len(words) or words[end].start_ms - words[end - 1].end_ms >= PAUSE_MS
        if not pause:
            end = at + _break(words[at : end + 1])
        yield words[at:end]
        at = end


def _together(words: Sequence[Word], limit: int, lead: int) -> bool:
    return (
        words[-1].end_ms - words[0].start_ms <= LONGEST_MS
        and words[-1].start_ms - words[-2].end_ms < PAUSE_MS
        and len(fill(words, limit, lead)) <= CUE_LINES
    )


def _break(words: Sequence[Word]) -> int:
    """How many of the words make a block where the last of them goes into the next in any case: as many as
    may be, and at least half, or a third if that ends a sentence."""
    most = len(words) - 1
    found = range(max(1, most // 3), most + 1)
    fair = [n for n in found if 2 * n >= most or _good(words, n) == 3]
    return max(fair, key=lambda n: (_good(words, n), n))


def _lines(words: Sequence[Word], limit: int, lead: int) -> list[list[Word]]:
    lines = fill(words, limit, lead)
    if len(lines) != CUE_LINES:
        return lines

    def width(some: Sequence[Word]) -> int:
        return columns(joined(some))

    fair = [
        n
        for n in range(1, len(words))
        if len(fill(words[:n], limit, lead)) == 1 and len(fill(words[n:], limit)) == 1
    ]
    # Of places that are as good the one that leaves the lines most alike.
    best = max(
        fair,
        key=lambda n: (_good(words, n), -abs(lead + width(words[:n]) - width(words[n:]))),
        default=len(lines[0]),
    )
    return [list(words[:best]), list(words[best:])]


def _good(words: Sequence[Word], n: int) -> int:
    """How good it is to break behind `n` words: 3 where a sentence ends, 2 a clause, 1 before a conjunction
    or preposition, 0 anywhere, -1 where what belongs together is torn."""
    last, next = words[n - 1].text, words[n].text if n < len(words) else ""
    if _SENTENCE.fullmatch(last):
        return 3
    if _CLAUSE.fullmatch(last):
        return 2
    if _HELD.fullmatch(_plain(last)) or _BEFORE.fullmatch(_plain(last)):
        return -1
    return 1 if _BEFORE.fullmatch(_plain(next)) else 0


def _plain(text: str) -> str:
    found = _WORD.search(text)
    return found.group().lower() if found else ""
