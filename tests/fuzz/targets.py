"""All of them."""

from __future__ import annotations

from . import audio, doors, engines, foreign, kept, wire
from .runner import Target

TARGETS: tuple[Target, ...] = (
    *wire.TARGETS,
    *audio.TARGETS,
    *foreign.TARGETS,
    *kept.TARGETS,
    *engines.TARGETS,
    *doors.TARGETS,
)
