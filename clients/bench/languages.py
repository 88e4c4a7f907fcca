"""`bench languages`: does each language come out in its own script, and how well?"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from .evaluate import Scored
from .scoring import UNSPACED

SCRIPTS: dict[str, tuple[str, ...]] = {
    "zh": ("CJK",),
    "ja": ("CJK", "HIRAGANA", "KATAKANA"),
    "ko": ("HANGUL",),
    "ru": ("CYRILLIC",),
}
"""Beginnings of the characters' Unicode names; every other language here is written in Latin letters."""


def script_share(text: str, language: str) -> float:
    """Share of the letters that belong to the language's script; 0 without a letter."""
    letters = [c for c in text if c.isalpha()]
    own = SCRIPTS.get(language, ("LATIN",))
    return sum(unicodedata.name(c, "").startswith(own) for c in letters) / len(letters) if letters else 0.0


def show(rows: Sequence[tuple[str, Scored]]) -> None:
    """Print one line a clip: language, what was heard as which, error rates, text."""
    console = Console(highlight=False)
    table = Table(title="Languages (CER where the script has no spaces, else WER)", title_justify="left")
    for name in ("clip", "lang", "heard as", "own script %", "live %", "offline %", "revised", "text"):
        table.add_column(name, overflow="fold")
    for language, row in rows:
        table.add_row(
            row.name.rpartition("/")[2],
            language,
            row.language or "-",
            f"{100 * script_share(row.text, language):.0f}",
            f"{100 * row.live.rate:.1f} {'CER' if language in UNSPACED else 'WER'}",
            f"{100 * row.offline.rate:.1f}" if row.offline else "-",
            str(row.revised),
            row.text,
        )
    console.print(table)


def wrong(rows: Sequence[tuple[str, Scored]]) -> list[str]:
    """What breaks the promise: no text, another script, a revised word, any fault."""
    found = []
    for language, row in rows:
        if script_share(row.text, language) < 0.9:
            found.append(f"{row.name}: text is not in the script of {language}: {row.text[:60]!r}")
        found += [f"{row.name}: {fault}" for fault in row.faults]
    return found
