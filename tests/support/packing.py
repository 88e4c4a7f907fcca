"""The independent MessagePack library, with types."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_msgpack: Any = import_module("msgpack")


def pack(value: Any) -> bytes:
    packed: bytes = _msgpack.packb(value)
    return packed


def unpack(data: bytes) -> Any:
    return _msgpack.unpackb(data)
