"""All the ways in."""

from __future__ import annotations

from . import deepgram, vosk
from .dialect import Way

WAYS: tuple[Way, ...] = (deepgram.WAY, vosk.WAY)
