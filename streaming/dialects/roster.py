"""Who is on which lane, and what the lane is called. Pure.

A lane belongs to the first who speaks on it, for what was said on it keeps its name. It is not given to
another when its owner leaves; who comes back under another id and the same name has it again. Where all are
taken, who comes next shares the last, which is then called by all their names.
"""

from __future__ import annotations

from collections.abc import Iterator

from streaming.wire.messages import Name

MOST = 64
"""People who are heard in one session."""

_KNOWN = 512
"""Names that are remembered, of who may never speak too."""

_NAME = 64


class Roster:
    """Of one session. Ids are the source's."""

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self._names: dict[str, str] = {}
        self._lane: dict[str, int] = {}
        self._gone: dict[str, int] = {}
        """Lanes of who left, by name."""
        self._told: dict[int, str] = {}

    def lane(self, who: str) -> int | None:
        """Of who speaks now; None where `MOST` others have spoken."""
        if who in self._lane:
            return self._lane[who]
        if len(self._lane) >= MOST:
            return None
        back = self._gone.pop(self._names.get(who, ""), None)
        new = min(len(set(self._lane.values())), self._lanes - 1)
        self._lane[who] = new if back is None else back
        return self._lane[who]

    def call(self, who: str, name: str) -> None:
        """`who` has this name, whether or not they ever speak."""
        name = name.strip()[:_NAME]
        if name and (who in self._names or len(self._names) < _KNOWN):
            self._names[who] = name

    def leave(self, who: str) -> None:
        """`who` is not there any more."""
        if who in self._lane and who in self._names:
            self._gone[self._names[who]] = self._lane[who]

    def news(self) -> Iterator[Name]:
        """What lanes are called now, where that was not told."""
        for lane in sorted(set(self._lane.values())):
            names = [self._names[who] for who, at in self._lane.items() if at == lane and who in self._names]
            name = " / ".join(dict.fromkeys(names))[:_NAME].strip()
            if name != self._told.get(lane, ""):
                self._told[lane] = name
                yield Name(lane + 1, name)
