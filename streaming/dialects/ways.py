"""All the ways in."""

from __future__ import annotations

from . import vosk
from .dialect import Way

WAYS: tuple[Way, ...] = (vosk.WAY,)
