"""All the ways in."""

from __future__ import annotations

from . import acs, attendee, deepgram, kyutai, openai_realtime, recall, twilio, vosk
from .dialect import Way

WAYS: tuple[Way, ...] = (
    deepgram.WAY,
    kyutai.WAY,
    openai_realtime.WAY,
    vosk.WAY,
    twilio.WAY,
    recall.WAY,
    attendee.WAY,
    acs.WAY,
)
