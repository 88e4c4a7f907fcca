"""All of them."""

from __future__ import annotations

from . import audio, doors, engines, kept, wire
from .runner import Target

TARGETS: tuple[Target, ...] = (
    *wire.TARGETS,
    *audio.TARGETS,
    *kept.TARGETS,
    *engines.TARGETS,
    *doors.TARGETS,
)
