"""Who is served next, and how much the callers should ask for. Pure: the shell passes the time in.

Order: final, then first partial, then refresh, then batch; among equals one task of each session in turn.
A newer first or refresh of a session takes the place of its older one, for a newer window says it all.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

from .contract import Priority, RecognitionTask

_REPLACEABLE = frozenset({Priority.FIRST, Priority.REFRESH})


@dataclass(frozen=True, slots=True, eq=False)
class Queued:
    """A waiting task. `since` is when it came, seconds of the caller's clock."""

    task: RecognitionTask
    since: float


class QueueFull(Exception):
    """Nothing less urgent was waiting that could have made room."""


class TaskQueue:
    """Bounded to `capacity` tasks. When full, a task takes the place of the newest less urgent one; where
    there is none it is refused with `QueueFull`."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError("a queue holds at least one task")
        self._capacity = capacity
        # Per priority: the sessions in the order of their turn, each with its tasks in order.
        self._lanes: dict[Priority, OrderedDict[str, deque[Queued]]] = {p: OrderedDict() for p in Priority}
        self._waiting: dict[str, Queued] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, task: RecognitionTask, now: float) -> list[RecognitionTask]:
        """Queue a task; the answer are the waiting tasks it pushed out. Raises ValueError when a task of
        this id waits already, `QueueFull` when there is no room."""
        if task.id in self._waiting:
            raise ValueError(f"task {task.id} waits already")
        lane = self._lanes[task.priority]
        turn = lane.get(task.session)
        displaced: list[RecognitionTask] = []
        if turn and task.priority in _REPLACEABLE:
            displaced = [turn.pop().task]
            del self._waiting[displaced[0].id]
        elif len(self._waiting) >= self._capacity:
            displaced = [self._make_room(task.priority)]
        queued = Queued(task, now)
        lane.setdefault(task.session, deque()).append(queued)
        self._waiting[task.id] = queued
        return displaced

    def pop(self, least: Priority = Priority.BATCH) -> Queued | None:
        """The task to run next, none less urgent than `least`; None where none waits."""
        for priority in Priority:
            if priority > least:
                break
            lane = self._lanes[priority]
            if lane:
                session, turn = next(iter(lane.items()))
                queued = turn.popleft()
                del self._waiting[queued.task.id]
                if turn:
                    lane.move_to_end(session)
                else:
                    del lane[session]
                return queued
        return None

    def cancel(self, id: str) -> bool:
        """Forget a waiting task; False where it does not wait."""
        queued = self._waiting.pop(id, None)
        if queued is None:
            return False
        lane = self._lanes[queued.task.priority]
        turn = lane[queued.task.session]
        turn.remove(queued)
        if not turn:
            del lane[queued.task.session]
        return True

    def oldest(self, now: float) -> float:
        """Seconds the longest waiting task has waited, batch tasks apart; 0 where none waits."""
        ages = (now - q.since for q in self._waiting.values() if q.task.priority is not Priority.BATCH)
        return max(ages, default=0.0)

    def _make_room(self, priority: Priority) -> RecognitionTask:
        for lower in reversed(Priority):
            lane = self._lanes[lower]
            if lower > priority and lane:
                newest = max((turn[-1] for turn in lane.values()), key=lambda q: q.since)
                self.cancel(newest.task.id)
                return newest.task
        raise QueueFull(f"{self._capacity} tasks wait, none less urgent than {priority.name.lower()}")


class LoadGauge:
    """From how busy the engine is to how far refresh intervals are stretched.

    Two measures, of which the greater counts. Where places are scarce a small control loop: while the engine
    is nearly always busy or tasks wait long, the factor grows step by step; when there is room it shrinks
    more slowly. Where an engine takes hundreds at once, how long refreshes take in it, and wherever this
    process itself has too little time, how late it is: the factor is in proportion, at once, for steps would
    swing between too rare and too many. It needs no estimate of what a task costs.
    """

    BUSY = 0.85
    """Share of engine time in use above which refreshes become rarer."""
    CALM = 0.65
    WAIT_S = 0.5
    """Seconds a task may wait before refreshes become rarer."""
    MANY = 16
    """An engine that takes so many at once has a queue of its own, and how long refreshes take tells of it;
    of one that takes fewer its places tell."""
    SLOW_S = 0.25
    """Seconds a refresh may take in such an engine before they become rarer; or"""
    SLOWER = 4.0
    """so many times what it takes when the engine is idle, whichever is more."""
    FORGET = 1.0001
    """By so much a period (twofold in an hour) the quickest refreshes are forgotten while none is slow:
    windows and engines change, but load that lasts is no reason to take it for idleness."""
    LEAST_S = 0.005
    """What took less was answered without the engine, and says nothing of it."""
    LATE_S = 0.1
    """Seconds by which this process may do things too late, on average, before refreshes become rarer: their
    requests and answers are what of its own work can wait."""
    STOPPED_S = 1.0
    """Later than this it was not busy but stopped."""
    PERIOD_S = 0.5
    """Seconds between two steps of the loop."""
    MOST = 6.0
    BRIEF = 2.5
    """Factor from which refreshes are to hear less, too. That costs words, which rarer refreshes do not: 8.4
    instead of 7.0 % were wrong, for a fifth of the engine's time. So it is for an engine that drowns, not for
    the load that admission lets in."""
    WHOLE = 1.5
    """Factor from which on, downwards, they hear all again."""

    def __init__(self, concurrency: int, now: float) -> None:
        self._concurrency = max(1, concurrency)
        self._running = 0
        self._changed = now
        self._stepped = now
        self._busy = 0.0
        self._utilisation = 0.0
        self._factor = self._scarce = 1.0
        self._brief = False
        self._served, self._took = 0, 0.0  # since the last step
        self._latency = 0.0
        self._looks, self._behind = 0, 0.0  # since the last step
        self._late = 0.0
        self._quickest = float("inf")

    @property
    def running(self) -> int:
        """Tasks running now."""
        return self._running

    @property
    def utilisation(self) -> float:
        """Share of engine time in use, smoothed, 0 to 1."""
        return self._utilisation

    @property
    def factor(self) -> float:
        """What refresh intervals are to be multiplied by, 1 to MOST."""
        return self._factor

    @property
    def brief(self) -> bool:
        """Whether refreshes are to hear less of what is committed already."""
        return self._brief

    def run(self, change: int, now: float) -> None:
        """`change` tasks started (or, negative, ended) at `now`."""
        self._busy += self._running * (now - self._changed)
        self._changed = now
        self._running += change

    def served(self, seconds: float) -> None:
        """A refresh took so long from its turn to its answer."""
        if seconds >= self.LEAST_S:
            self._served += 1
            self._took += seconds

    def late(self, seconds: float) -> None:
        """This process did something so long after it was to be done."""
        self._looks += 1
        self._behind += min(seconds, self.STOPPED_S)

    @property
    def slow(self) -> float:
        """How long refreshes take in an engine with a queue of its own, or how late this process is, as a
        multiple of what may be; whichever is more."""
        late = self._late / self.LATE_S
        if self._concurrency < self.MANY or self._quickest == float("inf"):
            return late
        return max(late, self._latency / max(self.SLOW_S, self.SLOWER * self._quickest))

    def due(self, now: float) -> bool:
        """Whether a period has passed since the last step."""
        return now - self._stepped >= self.PERIOD_S

    def step(self, oldest_s: float, now: float) -> None:
        """Advance the loop, once a period; earlier calls change nothing. `oldest_s` is the longest wait."""
        if not self.due(now):
            return
        passed = now - self._stepped
        self.run(0, now)
        share = self._busy / (passed * self._concurrency)
        # Half the weight for each second passed: the factor reacts within two or three seconds.
        weight = min(1.0, passed / 2)
        # However long nobody looked: late once, at a start or after a pause, is not late always.
        lasting = min(weight, self.PERIOD_S / 2)
        self._utilisation += (share - self._utilisation) * weight
        self._busy, self._stepped = 0.0, now
        if self._served:
            mean = self._took / self._served
            self._latency += (mean - self._latency) * lasting
            self._quickest = min(self._quickest * (self.FORGET if self.slow < 1.0 else 1.0), mean)
            self._served, self._took = 0, 0.0
        if self._looks:
            self._late += (self._behind / self._looks - self._late) * lasting
            self._looks, self._behind = 0, 0.0
        if self._utilisation > self.BUSY or oldest_s > self.WAIT_S:
            self._scarce = min(self.MOST, self._scarce * 1.2)
        elif self._utilisation < self.CALM:
            self._scarce = max(1.0, self._scarce / 1.1)
        self._factor = min(self.MOST, max(self._scarce, self.slow))
        self._brief = self._factor > (self.WHOLE if self._brief else self.BRIEF)
