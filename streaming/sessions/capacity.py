"""Whether one more session fits, from what is measured. Pure: the shell looks and passes the time in.

Refreshes become rarer first (the dispatcher's stretch); when they are as rare as they may become, no new
session begins. How much one more would cost is measured too: the engine's time over the audio received. What
was let in a moment ago and is not measured yet counts with that cost; until any is known, only so many may
be in that state.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from engine.queue import LoadGauge

SMOOTH_S = 5.0
"""Seconds after which 63 % of a change is seen; the same holds for what was let in."""

COLD_S = 20.0
"""The same while no cost is known: so long a burst takes the place of the next."""

CALM_S = 5.0
"""What closed the door must be gone for so long before it opens again."""

LOWER = 0.8
"""Gone is what is below this part of its limit: what hovers at the limit does not open and close the door."""

BUSY = LoadGauge.BUSY
"""Share of engine time in use from which the dispatcher makes refreshes rarer."""

HEARD = 30.0
"""Audio seconds from which the cost of one is known: young sessions have short windows and cost less."""

FORGET_S = 60.0
"""The same for a cost that falls; one that rises is believed at once. After a lull all sessions are young."""

SAFETY = 1.25
"""What is not measured yet may cost so much more than what is."""

FREE = 0.5
"""Up to this part of what may be used the known cost is trusted; beyond, small steps are measured."""

STEP = 1 / 8
"""So many of those who speak may be in such a step, one at least."""

SOON = 1.0
"""Words that are committed within this are not late, whatever they were without load."""

IDLE = 0.05
"""Engine time in use, of the limit, below which one session is let in whatever it may cost."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits. Seconds, where not said otherwise."""

    stretch: float = 1.3
    """How much rarer refreshes may become for the sake of one more session."""
    queue_s: float = 0.5
    """95 of 100 decodes wait less for the engine."""
    commit_s: float = 4.0
    """95 of 100 words are committed sooner."""
    commit_ratio: float = 1.35
    """The same, as a multiple of what it was without load."""
    burst: int = 4
    """New sessions before any was measured."""


@dataclass(frozen=True, slots=True)
class Look:
    """The server at one moment; `queue_s` and `commit_s` are the 95th percentile of the last seconds."""

    busy: float
    """Share of the engine's places that was in use since the look before."""
    stretch: float
    """What refresh intervals are multiplied by, from 1."""
    queue_s: float
    commit_s: float | None
    """None where too few words were committed to say."""
    audio_rate: float
    """Audio seconds received a second."""
    memory: float
    """Share of the memory that may be used."""
    slow: float = 0.0
    """How long refreshes take in an engine with a queue of its own, as a multiple of what they may; 0 where
    `busy` says all."""

    @property
    def used(self) -> float:
        """Share of the engine's time in use: of hundreds of places few are, until all of its time is."""
        return max(self.busy, BUSY * min(1.0, self.slow))


class Capacity:
    """Belongs to one clock, whose seconds every call is given."""

    def __init__(self, rules: Rules, now: float) -> None:
        self._rules = rules
        self._limit = BUSY * rules.stretch
        self._now = self._looked = now
        self._demand = 0.0
        self._rate = 0.0
        self._heard = 0.0
        self._pending = 0.0
        self._cost: float | None = None
        self._unloaded: float | None = None
        self._closed: str | None = None
        self._calm_since: float | None = None
        self._tight = False

    @property
    def closed(self) -> str | None:
        """What keeps everybody out until it is gone for a while: `memory`, `queue` or `commit`."""
        return self._closed

    @property
    def demand(self) -> float:
        """Engine time that would be in use were no refresh made rarer, of all there is; above 1: too much."""
        return self._demand

    @property
    def used(self) -> float:
        """How much of what may be used is used, what was let in lately included; from 1 on nothing fits."""
        return (self._demand + self._pending * (self._cost or 0.0)) / self._limit

    def look(self, look: Look, now: float) -> None:
        """What is measured at `now`."""
        self._pass(now)
        passed, self._looked = max(0.0, now - self._looked), now
        weight = 1 - math.exp(-passed / SMOOTH_S)
        self._demand += (look.used * look.stretch - self._demand) * weight
        self._rate += (look.audio_rate - self._rate) * weight
        self._heard += look.audio_rate * passed
        if self._heard >= HEARD and self._rate > IDLE:
            known, slow = SAFETY * self._demand / self._rate, 1 - math.exp(-passed / FORGET_S)
            before = known if self._cost is None else self._cost
            self._cost = max(known, before + (known - before) * slow)
        if look.commit_s is not None and look.stretch == 1.0 and look.used < FREE * BUSY:
            known = look.commit_s if self._unloaded is None else self._unloaded
            self._unloaded = known + (look.commit_s - known) * weight
        self._judge(dict(self._shares(look)), now)

    def refusal(self, now: float) -> str | None:
        """Why no session may begin now: `memory`, `queue`, `commit`, `load`, `burst`; None where one may."""
        self._pass(now)
        if self._closed is not None:
            return self._closed
        if self._cost is None:
            return "burst" if self._pending > self._rules.burst - 0.5 else None
        if self._idle:
            return None
        small = self._pending < max(0.5, self._rate * STEP)
        return None if not self._tight and self._next <= self._limit * (1.0 if small else FREE) else "load"

    def admit(self, now: float) -> None:
        """A session begins."""
        self._pass(now)
        self._pending += 1

    @property
    def _idle(self) -> bool:
        return self._demand < IDLE * self._limit and self._pending < 0.5

    @property
    def _next(self) -> float:
        """The demand with one session more."""
        return self._demand + (self._pending + 1) * (self._cost or 0.0)

    def _pass(self, now: float) -> None:
        fade_s = COLD_S if self._cost is None else SMOOTH_S
        self._pending *= math.exp(-max(0.0, now - self._now) / fade_s)
        self._now = max(now, self._now)

    def _shares(self, look: Look) -> Iterator[tuple[str, float]]:
        """What closes the door, each as a multiple of its limit."""
        yield "memory", look.memory
        yield "queue", look.queue_s / self._rules.queue_s
        if look.commit_s is not None and look.used * look.stretch >= LOWER * BUSY:
            # Words that come late while the engine has time to spare are not for want of capacity.
            most = self._rules.commit_s
            if self._unloaded is not None:
                most = min(most, max(SOON, self._unloaded * self._rules.commit_ratio))
            yield "commit", look.commit_s / most

    def _judge(self, shares: dict[str, float], now: float) -> None:
        over = [cause for cause, share in shares.items() if share >= 1.0]
        if over:
            self._closed, self._calm_since = over[0], None
        elif self._closed is not None and max(shares.values()) < LOWER:
            self._calm_since = now if self._calm_since is None else self._calm_since
            if now - self._calm_since >= CALM_S:
                self._closed = self._calm_since = None
        else:
            self._calm_since = None
        if self._next > self._limit:
            self._tight = True
        elif self._next <= LOWER * self._limit:
            self._tight = False
