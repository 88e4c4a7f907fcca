"""Byte pieces in, whole characters out. Rule: what leaves here is valid text, always.

Byte-level tokenizers cut characters anywhere. A character is held until its last byte is here, which
UTF-8 caps at three bytes; a sequence that turns out to be broken is dropped and counted, never replaced.
PURE: no clock, no thread, no I/O.
"""

from __future__ import annotations

MAX_HOLD = 3
"""Most bytes ever held back: the longest proper beginning of one UTF-8 character."""

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Utf8Assembler:
    """Joins byte pieces of one stream into text without half characters.

    `dropped` counts the bytes that could not become text: broken sequences, a rest that never came, and
    U+FFFD itself, which a model can spell out but nobody can say.
    """

    __slots__ = ("_held", "dropped")

    def __init__(self) -> None:
        self._held = b""
        self.dropped = 0

    @property
    def held(self) -> int:
        """Bytes waiting for the rest of their character, at most `MAX_HOLD`."""
        return len(self._held)

    def feed(self, piece: bytes) -> str:
        """The whole characters that `piece` completes; possibly empty, never cut."""
        data = self._held + piece
        out: list[str] = []
        self._held = b""
        while data:
            try:
                out.append(data.decode("utf-8"))
                break
            except UnicodeDecodeError as error:
                out.append(data[: error.start].decode("utf-8"))
                if error.end == len(data) and error.reason == "unexpected end of data":
                    self._held = data[error.start :]
                    break
                self.dropped += error.end - error.start
                data = data[error.end :]
        return self._without_replacement("".join(out))

    def flush(self) -> int:
        """Give up on a character whose rest never came; the number of bytes dropped."""
        lost = len(self._held)
        self._held = b""
        self.dropped += lost
        return lost

    def _without_replacement(self, text: str) -> str:
        count = text.count(REPLACEMENT)
        if count == 0:
            return text
        self.dropped += count * len(REPLACEMENT.encode())
        return text.replace(REPLACEMENT, "")
