"""Where an operator finds what to do: the rows of the tuning table, and warnings that name them.

The table stands in `engine/sglang/README.md`; a test holds both together.
"""

from __future__ import annotations

import logging
from collections import Counter
from enum import StrEnum

PAGE = "engine/sglang/README.md"

logger = logging.getLogger("seamscribe")


class Row(StrEnum):
    """Rows of the table, by their names there."""

    START_MEMORY = "T1"
    RUN_MEMORY = "T2"
    WAITING = "T3"
    CUT = "T4"
    LOOP = "T5"
    OTHER_GPU = "T6"
    LATE = "T7"
    LATE_FINAL = "T8"
    FULL = "T9"
    BROKEN = "T10"


def see(*rows: Row) -> str:
    """The reference that ends a message."""
    return f"see {', '.join(rows)} in {PAGE}"


SYMPTOMS: dict[str, tuple[str, Row]] = {
    "alarm_loop": ("an output repeated itself and was stopped", Row.LOOP),
    "alarm_flood": ("an output held more than anyone can say and was stopped", Row.LOOP),
    "alarm_length": ("an output ran into its budget", Row.CUT),
    "alarm_short": ("an output ended long before its audio", Row.CUT),
    "alarm_chatter": ("silence gave text, which was left out", Row.LOOP),
    "error_deadline": ("no answer in time", Row.LATE),
    "error_stalled": ("the engine said nothing for a while", Row.LATE),
    "error_overloaded": ("the engine refused a request", Row.FULL),
    "error_aborted": ("the engine gave a request up", Row.RUN_MEMORY),
    "error_engine": ("the engine failed", Row.RUN_MEMORY),
    "error_connection": ("an engine could not be reached", Row.BROKEN),
    "error_garbage": ("an answer made no sense", Row.BROKEN),
}
"""What a recognizer counts, in words, and the row that helps."""


class Tally(Counter[str]):
    """Counts by stable words; the 1st, 2nd, 4th, 8th ... of a symptom is logged with the row that helps."""

    def note(self, word: str, detail: str = "") -> None:
        """One more of `word`."""
        self[word] += 1
        count = self[word]
        if word in SYMPTOMS and count & (count - 1) == 0:
            what, row = SYMPTOMS[word]
            more = f": {detail}" if detail else ""
            logger.warning("%s (%s, %d so far)%s; %s", what, word, count, more, see(row))
