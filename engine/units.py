"""Text units from token pieces: words where the script has spaces, characters where it has none.

Rule: joining the units gives the decoded text back, outer space apart. Every unit knows which stretch of
the token sequence it came from, so that token times become unit times. PURE.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from .utf8 import Utf8Assembler

_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),  # ideographic iteration mark, closing mark, zero
    (0x3040, 0x312F),  # Hiragana, Katakana, Bopomofo
    (0x31F0, 0x31FF),  # Katakana extensions
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),  # half-width Katakana
    (0x20000, 0x3FFFF),
)
_STACKERS = "\u1039\u17d2\u200d"
"""Signs after which the next character belongs to the same cluster."""
_TRAILING_VOWELS = "\u0e30\u0e32\u0e33\u0e45\u0eb0\u0eb2\u0eb3"
"""Letters by category, yet unreadable without the consonant before them."""


_PLAIN = re.compile(r"[0-9A-Za-z]+|.", re.DOTALL)
"""The letters of a word in an alphabet of single bytes stay together, whatever stands around them."""


def letters(text: str) -> str:
    """What two decodes of one word must agree on: its letters, marks and digits, without case and width."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return "".join(char for char in plain if unicodedata.category(char)[0] in "LNM")


@dataclass(frozen=True, slots=True)
class Unit:
    """One word or character; `start` and `end` are positions in the token sequence.

    Position 2.0 is the beginning of token 2 and 2.5 its middle: several characters may share a token, and
    one character may need several.
    """

    text: str
    space: bool
    start: float
    end: float


@dataclass(slots=True)
class _Open:
    """A unit still growing."""

    text: str
    space: bool
    start: float
    end: float
    solo: bool
    opening: bool

    def add(self, text: str, end: float) -> None:
        self.text += text
        self.end = end


@dataclass(frozen=True, slots=True)
class _Char:
    """One character, or several that `_PLAIN` keeps together; the first tells where they belong."""

    text: str
    start: float
    end: float


def is_unspaced(char: str) -> bool:
    """Whether `char` belongs to a script that is written without spaces between words."""
    code = ord(char)
    return code >= 0x0E00 and any(low <= code <= high for low, high in _UNSPACED)


def is_punctuation(char: str) -> bool:
    """Whether `char` is punctuation, whatever the script."""
    return unicodedata.category(char)[0] == "P"


def is_wordless(text: str) -> bool:
    """Whether `text` holds nothing that can be spoken: only punctuation, symbols and space."""
    return not any(unicodedata.category(char)[0] in "LNM" for char in text)


def split_units(pieces: Sequence[bytes]) -> list[Unit]:
    """Units of the text that `pieces` (one a token) spell, in order."""
    chars = _characters(pieces)
    units: list[_Open] = []
    gap = False
    for index, char in enumerate(chars):
        if char.text.isspace():
            gap = True
            continue
        _place(units, chars, index, gap)
        gap = False
    return [Unit(unit.text, unit.space, unit.start, unit.end) for unit in units]


def _place(units: list[_Open], chars: Sequence[_Char], index: int, gap: bool) -> None:
    """Put one visible character into the unit it belongs to."""
    char = chars[index]
    first = char.text[0]
    last = units[-1] if units else None
    if last is not None and not gap and _clings(first, last.text[-1]):
        last.add(char.text, char.end)
    elif is_punctuation(first):
        opening = _opens(chars, index, gap or last is None)
        if last is None or (opening and (gap or last.solo or _is_bracket(char.text))):
            solo = last is not None and last.solo
            units.append(_Open(char.text, gap, char.start, char.end, solo, opening))
        else:
            last.add(f" {char.text}" if gap else char.text, char.end)
    else:
        solo = is_unspaced(first)
        if last is not None and not gap and (last.opening or not (solo or last.solo)):
            last.add(char.text, char.end)
            last.opening = False
            last.solo = solo
        else:
            units.append(_Open(char.text, gap, char.start, char.end, solo, opening=False))


def _clings(char: str, before: str) -> bool:
    """Whether `char` cannot stand without the character before it."""
    category = unicodedata.category(char)
    return category[0] == "M" or category == "Cf" or char in _TRAILING_VOWELS or before in _STACKERS


def _is_bracket(char: str) -> bool:
    return unicodedata.category(char) in ("Ps", "Pi") or char in "¿¡"


def _opens(chars: Sequence[_Char], index: int, fresh: bool) -> bool:
    """Whether this punctuation introduces what follows instead of closing what went before."""
    if not (fresh or _is_bracket(chars[index].text)):
        return False
    for char in chars[index + 1 :]:
        if char.text.isspace():
            return False
        if not is_punctuation(char.text[0]):
            return True
    return False


def _characters(pieces: Sequence[bytes]) -> list[_Char]:
    """Whole characters with their positions in the token sequence."""
    assembler = Utf8Assembler()
    starts: list[float] = []
    chars: list[_Char] = []
    for token, piece in enumerate(pieces):
        # The space before a word takes none of its time.
        lead = len(piece) - len(piece.lstrip())
        width = max(len(piece) - lead, 1)
        if piece.isascii() and not assembler.held and not (chars and chars[-1].text in _STACKERS):
            for run in _PLAIN.finditer(piece.decode("ascii")):
                low, high = max(run.start() - lead, 0), max(run.end() - lead, 0)
                chars.append(_Char(run.group(), token + low / width, token + high / width))
            continue
        for offset in range(len(piece)):
            starts.append(token + max(offset - lead, 0) / width)
            text = assembler.feed(piece[offset : offset + 1])
            end = token + max(offset + 1 - lead, 0) / width
            for char in text:
                chars.append(_Char(char, starts[-len(char.encode())], end))
    return chars
