"""What people may be called: one line that shows as it is. Pure."""

from __future__ import annotations

import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"
"""Some scripts and many pictures are not written without them."""


def shows(name: str) -> bool:
    """Whether nothing in it breaks a line, moves a cursor, turns text around or stays unseen."""
    return all(map(_shows, name))


def plain(name: str) -> str:
    """The name with a space in place of what would, and no more spaces than divide it."""
    return " ".join("".join(c if _shows(c) else " " for c in name).split())


def _shows(character: str) -> bool:
    return unicodedata.category(character) not in _HIDDEN or character in _JOINERS
