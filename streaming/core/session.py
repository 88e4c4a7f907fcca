"""One session, composed. Inputs are `receive_*`; outputs are drained by `tasks_to_run`,
`tasks_to_cancel` and `events_to_send`.

(Signatures agreed first; the body follows.)
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.contract import Audio, Capabilities, Hypothesis, RecognitionTask, Voice

from .events import Event


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How a session cuts, refreshes and commits. Seconds."""

    max_delay_s: float = 3.0
    pause_s: float = 0.6
    refresh_s: float = 1.0


class Session:
    def __init__(
        self,
        id: str,
        settings: SessionSettings,
        capabilities: Capabilities,
        *,
        language: str | None = None,
        context: str = "",
        hotwords: tuple[str, ...] = (),
    ) -> None:
        raise NotImplementedError

    @property
    def received(self) -> int:
        """Samples received so far."""
        raise NotImplementedError

    @property
    def backlog(self) -> int:
        """Received samples no decode has covered yet; the shell stops reading above its limit."""
        raise NotImplementedError

    def receive_audio(self, audio: Audio, voices: list[Voice]) -> None:
        """Whole frames (n * FRAME samples) with their n verdicts."""

    def receive_flush(self, id: str) -> None:
        """Make everything received final; `Flushed(id)` follows when it is."""

    def receive_end(self, tail: Audio) -> None:
        """No more audio after `tail` (fewer than FRAME samples, the odd rest); `Ended` follows."""

    def receive_hypothesis(self, task: str, hypothesis: Hypothesis) -> None:
        """The reply to a task; stale and unknown ones change nothing."""

    def receive_failure(self, task: str, cause: str, *, retryable: bool) -> None:
        """The task failed; the session retries it or declares a gap."""

    def tasks_to_run(self) -> list[RecognitionTask]:
        raise NotImplementedError

    def tasks_to_cancel(self) -> list[str]:
        """Ids of tasks whose answer is no longer wanted."""
        raise NotImplementedError

    def events_to_send(self) -> list[Event]:
        raise NotImplementedError

    def stretch(self, factor: float) -> None:
        """Load told by the shell: refresh intervals are multiplied by `factor` (>= 1)."""
