"""Who is there, on which lane, and what the lane is called. Pure.

A lane belongs to the first who speaks on it, for what was said on it keeps its name. It is not given to
another when its owner leaves; who comes back under another id and the same name has it again. Where all are
taken, who comes next shares the last, which is then called by all their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from streaming.wire.messages import Name, Presence
from streaming.wire.names import plain

MOST = 64
"""People who are heard in one session."""

_KNOWN = 512
"""People who are remembered, though they may never speak."""

_NAME = 64


@dataclass(slots=True)
class _Person:
    name: str = ""
    present: bool = True
    lane: int | None = None


class Roster:
    """Of one session. Ids are the source's."""

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self._people: dict[str, _Person] = {}
        self._speaking: dict[str, int] = {}
        """Who has a lane, and which."""
        self._gone: dict[str, int] = {}
        """Lanes of who left, by name."""
        self._called: dict[int, str] = {}
        self._news: dict[str, None] = {}
        """Of whom there is something to tell."""

    def lane(self, who: str) -> int | None:
        """Of who speaks now; None where `MOST` others have spoken."""
        if who in self._speaking:
            return self._speaking[who]
        if len(self._speaking) >= MOST:
            return None
        person = self._person(who)
        back = self._gone.pop(person.name, None)
        new = min(len(set(self._speaking.values())), self._lanes - 1)
        person.lane = self._speaking[who] = new if back is None else back
        self._news[who] = None
        return person.lane

    def meet(self, who: str, name: str = "") -> None:
        """`who` was told of, and may have a name, whether or not they ever speak."""
        if who in self._people or len(self._people) < _KNOWN:
            person, name = self._person(who), plain(name)[:_NAME].strip()
            if name and name != person.name:
                person.name = name
                self._news[who] = None

    def join(self, who: str) -> None:
        """`who`, whom we met, is there, again perhaps."""
        self._move(who, present=True)

    def leave(self, who: str) -> None:
        """`who` is not there any more."""
        person = self._move(who, present=False)
        if person is not None and person.lane is not None and person.name:
            self._gone[person.name] = person.lane

    def presences(self) -> Iterator[Presence]:
        """Who came, left, or is better known than they were when it was told."""
        news, self._news = self._news, {}
        for who in news:
            person = self._people[who]
            speaker = None if person.lane is None else person.lane + 1
            yield Presence(who, person.present, person.name, speaker)

    def names(self) -> Iterator[Name]:
        """What lanes are called now, where that was not told."""
        for lane in sorted(set(self._speaking.values())):
            people = [self._people[who] for who, at in self._speaking.items() if at == lane]
            name = " / ".join(dict.fromkeys(one.name for one in people if one.name))[:_NAME].strip()
            if name != self._called.get(lane, ""):
                self._called[lane] = name
                yield Name(lane + 1, name)

    def _person(self, who: str) -> _Person:
        if who not in self._people:
            self._people[who] = _Person()
            self._news[who] = None
        return self._people[who]

    def _move(self, who: str, *, present: bool) -> _Person | None:
        person = self._people.get(who)
        if person is not None and person.present is not present:
            person.present = present
            self._news[who] = None
        return person
