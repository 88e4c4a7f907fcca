"""Forced words that end where the model would not: the last character is asked for instead of forced.

A tokenizer writes common pairs of characters as one token. A prefix that ends inside such a pair makes the
model go on from a place where it never was, and it may go on differently: after a forced "大" of "大家" base
writes "将"; in 5 of 132 places of Chinese and Japanese speech it takes another next character. So the last
character of a script without spaces is left to the model; where it says the same one, what follows counts.
Where it does not (5 others of the 132), the words are forced as they stand. All 132 come out right.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from engine.contract import Capabilities, Hypothesis, RecognitionTask, Recognizer
from engine.units import is_unspaced, letters


class Bordered:
    """A recognizer that forces words only where `inner` would end a token. `counters` are its own."""

    def __init__(self, inner: Recognizer) -> None:
        self.inner = inner
        self.counters: Counter[str] = Counter()

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    async def recognize(self, task: RecognitionTask) -> Hypothesis:
        """As `inner` does; two decodes where the model contradicts the last forced character."""
        shorter = loosened(task) if self.inner.capabilities.forced_prefix else None
        if shorter is None:
            return await self.inner.recognize(task)
        heard = rejoined(task, await self.inner.recognize(shorter))
        self.counters["border_forced" if heard is None else "border_agreed"] += 1
        return heard or await self.inner.recognize(task)

    async def close(self) -> None:
        await self.inner.close()


def loosened(task: RecognitionTask) -> RecognitionTask | None:
    """`task` with one word less to begin with; None where its prefix ends at a safe place."""
    if not task.prefix or not any(map(is_unspaced, task.prefix[-1].text)):
        return None
    return replace(task, prefix=task.prefix[:-1], draft=(task.prefix[-1], *task.draft))


def rejoined(task: RecognitionTask, heard: Hypothesis) -> Hypothesis | None:
    """What `heard`, the reply to the loosened task, says after the prefix of `task`; None where it
    contradicts the prefix."""
    last = task.prefix[-1]
    if not heard.words or letters(heard.words[0].text) != letters(last.text):
        return None
    edge = max(last.end, task.start)
    words = []
    for word in heard.words[1:]:
        start = max(word.start, edge)
        edge = max(word.end, start)
        words.append(replace(word, start=start, end=edge))
    return replace(heard, words=tuple(words))
