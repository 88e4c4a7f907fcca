"""When somebody begins to speak and stops, for whoever wants to be told: beside what is cut and decoded, with
a pause of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.contract import Voice

from .events import ActivityChanged
from .gate import Edge, GateSettings, SpeechGate, Started
from .settings import SessionSettings
from .spans import to_samples


class Watch:
    """The tracks of a meeting on one clock."""

    def __init__(self, settings: SessionSettings, pause_s: float, tracks: int, start: int = 0) -> None:
        """Speech has stopped after `pause_s` without a voiced frame. The first frame begins at `start`."""
        onset = to_samples(settings.onset_s)
        gate = GateSettings(settings.voice_on, settings.voice_off, onset, to_samples(pause_s), pad=0)
        self._gates = tuple(SpeechGate(gate, start) for _ in range(tracks or 1))
        self._numbered = tracks > 0

    def receive(self, voices: Sequence[list[Voice]]) -> Iterator[ActivityChanged]:
        """Verdicts of whole frames, track by track."""
        for index, (gate, verdicts) in enumerate(zip(self._gates, voices, strict=True)):
            for verdict in verdicts:
                yield from self._told(index, gate.step(verdict))

    def end(self) -> Iterator[ActivityChanged]:
        """No more audio."""
        for index, gate in enumerate(self._gates):
            yield from self._told(index, gate.close())

    def _told(self, index: int, edge: Edge | None) -> Iterator[ActivityChanged]:
        track = index if self._numbered else None
        if isinstance(edge, Started):
            yield ActivityChanged(True, edge.at, track)
        elif edge is not None:
            yield ActivityChanged(False, edge.voice_end, track)
