"""The query of an address, read leniently; what nobody asked for is known. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeVar
from urllib.parse import parse_qsl

from streaming.wire.errors import ProtocolError, shown

_YES = frozenset({"true", "1", "yes", "on"})
_NO = frozenset({"false", "0", "no", "off", ""})

_Number = TypeVar("_Number", int, float)


class Query:
    """Names with their values in order. Everything raises `ProtocolError` naming the field and the remedy."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            self._values.setdefault(name, []).append(value)
        self._unread = dict.fromkeys(self._values)

    @classmethod
    def parse(cls, text: str) -> Query:
        """Of the text behind the question mark."""
        return cls(parse_qsl(text, keep_blank_values=True, errors="replace"))

    @property
    def unread(self) -> tuple[str, ...]:
        """Names that nobody asked for so far."""
        return tuple(self._unread)

    def texts(self, name: str) -> list[str]:
        """All values, in order."""
        self._unread.pop(name, None)
        return self._values.get(name, [])

    def text(self, name: str) -> str | None:
        """The last value; None where there is none, or it is empty."""
        values = self.texts(name)
        return (values[-1] or None) if values else None

    def flag(self, name: str, default: bool = False) -> bool:
        """True, False, 1, 0 and their like, in any case."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() in _YES | _NO:
            return value.lower() in _YES
        raise _wrong(name, value, "use true or false")

    def choice(self, name: str) -> list[str]:
        """Values that are neither true nor false: what is wanted, of several."""
        return [value for value in self.texts(name) if value.lower() not in _YES | _NO]

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number from `least` to `most`."""
        return self._number(name, int, default, least, most)

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """A number from `least` to `most`."""
        return self._number(name, float, default, least, most)

    def _number(
        self, name: str, kind: type[_Number], default: _Number, least: _Number, most: _Number
    ) -> _Number:
        value = self.text(name)
        if value is None:
            return default
        try:
            # `int` takes its time over a long text.
            number = kind(value) if len(value) <= 32 else kind("x")
        except ValueError:
            number = most + 1
        if math.isnan(number) or not least <= number <= most:
            raise _wrong(name, value, f"use {least:g} to {most:g}")
        return number


def _wrong(name: str, value: str, remedy: str) -> ProtocolError:
    return ProtocolError("bad_field", f"{name}: {shown(value)} cannot be: {remedy}", field=name)
