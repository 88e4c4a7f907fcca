"""What an operator's function strikes out of the words, before anybody hears or keeps them.

It stands where the core's events become messages, which is ahead of everything that leaves a session:
partials, committed words, readers, the journal, exports, webhooks. Words keep their index and their times. A
committed word never changes, so what was said of it at first holds: the function should rather strike out too
much than wait for more. The core itself, in memory, decodes on with the words as they were spoken.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from msgspec.structs import replace as changed

from engine.contract import Word
from streaming.core.events import Event, SegmentUpdated
from streaming.errors import SettingsError
from streaming.wire.messages import Start

logger = logging.getLogger("seamscribe")

Redact = Callable[[Sequence[str]], Sequence[str]]
"""The words of a segment so far, those that may still change last; returns as many, each as it may be known.
Called for every change of a segment, in the event loop: it must be quick."""

MASK = "[redacted]"
"""Stands for a word where the function failed."""


def load(path: str) -> Redact | None:
    """The function of the setting `module:function`; None for an empty one. Raises `SettingsError`."""
    if not path:
        return None
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise SettingsError(
            f"privacy.redact: {path!r} cannot be loaded ({error}): name it module:function, importable here"
        ) from error
    if not callable(found):
        raise SettingsError(
            f"privacy.redact: {path!r} is no function: name one that takes words and returns as many"
        )
    function: Redact = found
    return function


def kept(start: Start, redact: Redact | None) -> Start:
    """`start` as the journal may keep it: what a client says there about its talk is words too."""
    return start if redact is None else changed(start, context="", hotwords=())


class Redactor:
    """One session's."""

    def __init__(self, redact: Redact | None) -> None:
        self._redact = redact
        self._told: dict[int | None, bytearray] = {}
        """Of each track which of its committed words were told."""
        self._struck: dict[tuple[int | None, int], str] = {}
        """How those of them read that were struck out, by track and index."""
        self._warned = False

    def apply(self, event: Event) -> Event:
        """The event as it may be known."""
        if self._redact is None or not isinstance(event, SegmentUpdated):
            return event
        if not (event.words or event.partial):
            return event
        texts = self._ask(self._redact, [word.text for word in (*event.words, *event.partial)])
        words = [
            replace(word, text=self._settled(event.track, index, word, text))
            for index, (word, text) in enumerate(zip(event.words, texts, strict=False), event.first_word)
        ]
        partial = [
            replace(word, text=text) for word, text in zip(event.partial, texts[len(words) :], strict=True)
        ]
        return replace(event, words=tuple(words), partial=tuple(partial))

    def _settled(self, track: int | None, index: int, word: Word, text: str) -> str:
        told = self._told.setdefault(track, bytearray())
        if index >= len(told):
            told.extend(bytes(index + 1 - len(told)))
        if not told[index]:
            told[index] = 1
            if text != word.text:
                self._struck[track, index] = text
        return self._struck.get((track, index), word.text)

    def _ask(self, redact: Redact, texts: Sequence[str]) -> Sequence[str]:
        try:
            found = list(redact(tuple(texts)))
            if len(found) != len(texts) or not all(isinstance(text, str) for text in found):
                raise ValueError(f"{len(texts)} words came back as {len(found)}, or not as text")
        except Exception as error:  # noqa: BLE001 - foreign code; whatever fails, nothing may leak
            if not self._warned:
                self._warned = True
                # Not the error's text, which may quote what it was given.
                logger.error(
                    "privacy.redact failed (%(error)s): words are masked", {"error": type(error).__name__}
                )
            return [MASK] * len(texts)
        return [text or MASK for text in found]
