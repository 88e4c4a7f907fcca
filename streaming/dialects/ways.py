"""All the ways in."""

from __future__ import annotations

from . import deepgram, kyutai, openai_realtime, vosk
from .dialect import Way

WAYS: tuple[Way, ...] = (deepgram.WAY, kyutai.WAY, openai_realtime.WAY, vosk.WAY)
