"""What one key may use: sessions at once, and minutes of audio a day (UTC). Counted in this process, from its
start; nothing outlives it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping

from .errors import StreamError
from .keys import KeySettings
from .wire.errors import CloseCode
from .wire.messages import CLOCK_RATE

DAY_S = 86_400
BACK_MS = 5000
"""When to ask again for a session where all of a key's are taken."""


class KeyLimit(StreamError):
    """A key has used what it may."""

    def __init__(self, what: str, retry_after_ms: int) -> None:
        super().__init__(
            "key_limit",
            f"{what}: try again in {retry_after_ms} ms, or have the operator raise the limit",
            close=CloseCode.LIMIT,
            retry_after_ms=retry_after_ms,
        )


class Quotas:
    """The books of all keys."""

    def __init__(
        self, keys: Mapping[str, KeySettings] | None = None, now: Callable[[], float] = time.time
    ) -> None:
        self._keys = dict(keys or {})
        self._now = now
        self._sessions: Counter[str] = Counter()
        self._samples: Counter[str] = Counter()
        self._day = -1

    def lease(self, key: str) -> Lease:
        """One more session of a key; raises `KeyLimit`. Close it when the session ends."""
        rules = self._keys.get(key)
        if rules is not None:
            if rules.max_sessions is not None and self._sessions[key] >= rules.max_sessions:
                raise KeyLimit(f"all {rules.max_sessions} sessions of this key are taken", BACK_MS)
            self.spend(key, 0)
        self._sessions[key] += 1
        return Lease(self, key)

    def spend(self, key: str, samples: int) -> None:
        """Count audio; raises `KeyLimit` once the day's is used up."""
        self._turn()
        self._samples[key] += samples
        rules = self._keys.get(key)
        if rules is None or rules.minutes_a_day is None:
            return
        if self._samples[key] >= rules.minutes_a_day * 60 * CLOCK_RATE:
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

    def _turn(self) -> None:
        day = int(self._now() // DAY_S)
        if day != self._day:
            self._day = day
            self._samples.clear()


class Lease:
    """One session's place among those of its key."""

    def __init__(self, quotas: Quotas, key: str) -> None:
        self._quotas = quotas
        self._key = key
        self._counted = 0
        self._closed = False

    def spend(self, received: int) -> None:
        """The session has received so many samples in all; raises `KeyLimit`."""
        more, self._counted = received - self._counted, received
        self._quotas.spend(self._key, more)

    def close(self) -> None:
        """The session is over; again: nothing."""
        if not self._closed:
            self._closed = True
            self._quotas.give_back(self._key)
