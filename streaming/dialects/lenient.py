"""JSON of others' making. Pure; raises `ProtocolError`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from streaming.wire.errors import ProtocolError, shown

HOTWORDS = 200
HOTWORD = 64

DEPTH = 32
"""No protocol nests deeper; what does could be read and not be written again."""


def json_of(text: str | bytes) -> dict[str, Any]:
    """An object."""
    try:
        message = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        what = shown(str(error))
        raise ProtocolError("malformed", f"the message is no JSON object ({what}): check it") from None
    level: list[object] = [message]
    for _ in range(DEPTH):
        nested = [one for one in level if isinstance(one, dict | list)]
        if not nested:
            return message
        level = [part for one in nested for part in (one.values() if isinstance(one, dict) else one)]
    raise ProtocolError("malformed", f"the message is nested deeper than {DEPTH} levels: send it flat")


def hotwords_of(values: Iterable[object]) -> tuple[str, ...]:
    """As many as a session takes, each once: texts of at most `HOTWORD` characters."""
    texts = (value.strip() for value in values if isinstance(value, str))
    return tuple(dict.fromkeys(text for text in texts if 0 < len(text) <= HOTWORD))[:HOTWORDS]
