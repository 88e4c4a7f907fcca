"""What one key may use: sessions at once, and minutes of audio a day (UTC). Counted in this process, with
what others count where there are `Books`; what was used of a day is noted, for the processes that follow.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Protocol

from streaming.errors import StreamError
from streaming.wire.errors import CloseCode
from streaming.wire.messages import CLOCK_RATE

from .keys import KeySettings

DAY_S = 86_400
NOTED = 10 * CLOCK_RATE
"""So much audio of a key, samples, goes unnoted at the most while its sessions live."""

BACK_MS = 5000
"""When to ask again for a session where all of a key's are taken."""


SHARED_S = 2.0
"""How often processes tell each other what they count."""


class KeyLimit(StreamError):
    """A key has used what it may."""

    def __init__(self, what: str, retry_after_ms: int) -> None:
        super().__init__(
            "key_limit",
            f"{what}: try again in {retry_after_ms} ms, or have the operator raise the limit",
            close=CloseCode.LIMIT,
            retry_after_ms=retry_after_ms,
        )


Note = Callable[[int, str, int], None]
"""Is told how many samples a key has used of a day (since 1970), all of that day's."""


def forget(day: int, key: str, samples: int) -> None:
    """Where nothing outlives the process."""


class Books(Protocol):
    """What the processes of one server count together."""

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """What the methods may raise while nobody can be asked."""
        ...

    async def seat(self, key: str, sessions: int, most: int) -> bool:
        """Whether this process may have so many sessions of a key, of which all processes have `most`; from
        then on it has."""
        ...

    async def tell(self, sessions: Mapping[str, int]) -> None:
        """This process has so many sessions of each key."""
        ...

    async def used(self, day: int) -> Mapping[str, int]:
        """Samples that other processes noted for each key and a day (since 1970)."""
        ...


class Quotas:
    """The books of all keys."""

    def __init__(
        self,
        keys: Mapping[str, KeySettings] | None = None,
        now: Callable[[], float] = time.time,
        note: Note = forget,
        used: Iterable[tuple[int, str, int]] = (),
        books: Books | None = None,
    ) -> None:
        """`used` is what was noted before, by nobody who is asked through `books`."""
        self._keys = dict(keys or {})
        self._now = now
        self._note = note
        self._books = books
        self._turns = asyncio.Lock()
        self._reached = True
        self._others: Mapping[str, int] = {}
        self._sessions: Counter[str] = Counter()
        self._samples: Counter[str] = Counter()
        self._noted: Counter[str] = Counter()
        self._day = -1
        self._turn()
        for day, key, samples in used:
            if day == self._day:
                self._samples[key] = self._noted[key] = samples

    async def lease(self, key: str) -> Lease:
        """One more session of a key; raises `KeyLimit`. Close it when the session ends."""
        rules = self._keys.get(key)
        if rules is None:
            return self.go_on(key, 0)
        most = rules.max_sessions
        # What this process says of itself must not overtake itself; while nobody is reached it says nothing.
        async with self._turns if self._reached else nullcontext():
            if rules.minutes_a_day is not None:
                await self._asked(self._learn)
            self.spend(key, 0)
            taken = most is not None and self._sessions[key] >= most
            if taken or not await self._asked(lambda books: _seat(books, key, self._sessions[key] + 1, most)):
                raise KeyLimit(f"all {most} sessions of this key are taken", BACK_MS)
            return self.go_on(key, 0)

    async def _asked(self, ask: Callable[[Books], Awaitable[bool]]) -> bool:
        """What the others say; true while they cannot be asked, for then each counts for itself."""
        if self._books is not None and self._reached:
            try:
                return await ask(self._books)
            except self._books.failures:
                self._reached = False
        return True

    async def tend(self) -> None:
        """Where there are others, and limits: tell them what is counted here and learn what they count, again
        and again, without end."""
        if self._books is None:
            return
        seats = [key for key, rules in self._keys.items() if rules.max_sessions is not None]
        minutes = any(rules.minutes_a_day is not None for rules in self._keys.values())
        while seats or minutes:
            async with self._turns:
                try:
                    await self._books.tell({key: self._sessions[key] for key in seats})
                    if minutes:
                        await self._learn(self._books)
                    self._reached = True
                except self._books.failures:
                    self._reached = False
            await asyncio.sleep(SHARED_S)

    async def _learn(self, books: Books) -> bool:
        self._turn()
        day = self._day
        others = await books.used(day)
        if day == self._day:
            self._others = others
        return True

    def go_on(self, key: str, received: int) -> Lease:
        """The same for a session that was promised that it may go on, and whose first samples, so many, were
        counted before."""
        self._sessions[key] += 1
        return Lease(self, key, received)

    def spend(self, key: str, samples: int) -> None:
        """Count audio; raises `KeyLimit` once the day's is used up."""
        self._turn()
        self._samples[key] += samples
        if self._samples[key] - self._noted[key] >= NOTED:
            self._tell(key)
        rules = self._keys.get(key)
        if rules is None or rules.minutes_a_day is None:
            return
        if self._samples[key] + self._others.get(key, 0) >= rules.minutes_a_day * 60 * CLOCK_RATE:
            left = DAY_S - self._now() % DAY_S
            raise KeyLimit(
                f"the {rules.minutes_a_day:g} minutes of audio a day of this key are used up",
                round(left * 1000),
            )

    def sessions(self, key: str) -> int:
        """How many of the key's sessions live."""
        return self._sessions[key]

    def give_back(self, key: str) -> None:
        self._sessions[key] -= 1
        if self._samples[key] > self._noted[key]:
            self._tell(key)

    def _tell(self, key: str) -> None:
        self._noted[key] = self._samples[key]
        if key in self._keys:
            self._note(self._day, key, self._samples[key])

    def _turn(self) -> None:
        day = int(self._now() // DAY_S)
        if day != self._day:
            self._day = day
            self._others = {}
            self._samples.clear()
            self._noted.clear()


async def _seat(books: Books, key: str, sessions: int, most: int | None) -> bool:
    return most is None or await books.seat(key, sessions, most)


class Lease:
    """One session's place among those of its key."""

    def __init__(self, quotas: Quotas, key: str, counted: int) -> None:
        self._quotas = quotas
        self._key = key
        self._counted = counted
        self._closed = False

    @property
    def key(self) -> str:
        """The name of the API key it counts against; empty: none."""
        return self._key

    def spend(self, received: int) -> None:
        """The session has received so many samples in all; raises `KeyLimit`."""
        more, self._counted = max(0, received - self._counted), max(received, self._counted)
        self._quotas.spend(self._key, more)

    def close(self) -> None:
        """The session is over; again: nothing."""
        if not self._closed:
            self._closed = True
            self._quotas.give_back(self._key)
