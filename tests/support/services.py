"""What the sessions of a server under test share."""

from __future__ import annotations

from typing import Any

from engine.contract import Recognizer
from engine.dispatcher import Dispatcher, DispatchSettings
from engine.fake import FakeDetector
from streaming.app import observer
from streaming.core.settings import SessionSettings
from streaming.observe.metrics import Metrics
from streaming.sessions.registry import Sessions
from streaming.sessions.services import Services
from streaming.settings import LimitSettings, ServerSettings


def services_of(recognizer: Recognizer, limits: LimitSettings | None = None, **fields: Any) -> Services:
    """Over this engine, with the scripted voice detector; `fields` of `Services` take the place of ours."""
    limits, metrics = limits or LimitSettings(), fields.setdefault("metrics", Metrics())
    if "dispatcher" not in fields:
        fields["dispatcher"] = Dispatcher(recognizer, DispatchSettings(), observer(metrics))
    if "sessions" not in fields:
        fields["sessions"] = Sessions(ServerSettings(), limits)
    return Services(**{"session": SessionSettings(), "limits": limits, "detector": FakeDetector(), **fields})


VIRTUAL: dict[str, Any] = {"inline": 1 << 30}
"""Fields for virtual time: threads have none."""
