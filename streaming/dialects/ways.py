"""All the ways in."""

from __future__ import annotations

from . import deepgram, kyutai, vosk
from .dialect import Way

WAYS: tuple[Way, ...] = (deepgram.WAY, kyutai.WAY, vosk.WAY)
