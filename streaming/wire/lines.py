"""How wide text is and where lines end. Pure. `clients/web/lines.js` follows the same rules; both are held to
`tests/vectors/lines.json`."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from .messages import Word

HANGING = 4
"""Columns of closing punctuation that may stand over the end of a line."""

_INVISIBLE = frozenset({"Mn", "Me", "Cf"})
_CLOSING = re.compile(r"[.,!?:;…%)\]}”’»、。，．！？：；）】〉》」』〕〗｝ー々]+")  # noqa: RUF001
_OPENING = re.compile(r"[(\[{“‘«（【〈《「『〔〖｛]+")  # noqa: RUF001


def columns(text: str) -> int:
    """Width on a screen: East Asian wide characters take two columns, marks on others and what is not seen
    take none."""
    return sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.category(character) in _INVISIBLE:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def spaced(word: Word) -> bool:
    """Whether a space stands before the word."""
    return word.space is not False


def flowing(words: Iterable[Word]) -> str:
    """How the words read behind others: with the space before the first."""
    return "".join(f" {w.text}" if spaced(w) else w.text for w in words)


def joined(words: Iterable[Word]) -> str:
    """How the words read, without outer space."""
    return flowing(words).strip()


def fits(word: Word, used: int, limit: int) -> bool:
    """Whether the word goes on a line that has `used` of `limit` columns. Where no space stands before it,
    closing punctuation may hang over the end, for no line begins with it, and an opening bracket wants
    company."""
    if used == 0:
        return True
    width = columns(word.text)
    if spaced(word):
        return used + 1 + width <= limit
    if _CLOSING.fullmatch(word.text):
        return used + width <= limit + HANGING
    return used + width + (2 if _OPENING.fullmatch(word.text) else 0) <= limit


def after(word: Word, used: int) -> int:
    """The columns of a line with the word behind the `used` ones."""
    return used + columns(word.text) + (used > 0 and spaced(word))


def fill(words: Iterable[Word], limit: int, lead: int = 0) -> list[list[Word]]:
    """Words as lines of at most `limit` columns, each filled before the next begins: words that come later
    never move those that came before. A word that is longer has a line to itself. `lead` columns of the first
    line are taken."""
    lines: list[list[Word]] = []
    used = lead
    for word in words:
        if not lines or not fits(word, used, limit):
            used = 0 if lines else lead
            lines.append([])
        lines[-1].append(word)
        used = after(word, used)
    return lines
