"""`python -m clients.bench.fleet`: what becomes of very many meetings on very many machines, in virtual time.

Meetings come at one balancer, which sends each to any front; a front lets it in, or not, by the server's own
rules (`sessions.capacity`), and makes refreshes rarer by the dispatcher's own (`LoadGauge`). Decodes go to
the engines in turn, as SGLang's router does it (`round_robin`). Only the engine is a model: it takes all that
wait, up to `most` at once, and is done after `base_s` and `each_s` for each of them. The two are fitted to
what one H200 was measured to do, and so is how its time varies; `--check` shows both.

Seeded: the same options give the same figures. Time passes in steps of `STEP_S`.
"""

from __future__ import annotations

import argparse
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from random import Random

import numpy as np
import numpy.typing as npt

from engine.queue import LoadGauge
from streaming.sessions.capacity import Capacity, Look, Rules

STEP_S = 0.01
LOOK_S = 0.5
"""How often a front looks at its load."""
PARTS = 1000
"""Of a decode, for a gauge that counts whole ones and is told means."""
RETRY_S = 5.0
"""How long who is refused stays away (`limits.retry_after_s`), give or take a fifth."""
SPREAD = (-0.125, 0.5)
"""Of a batch's time around what its size makes it: lognormal, with the mean 1."""
SPEECH_S, PAUSE_S = 8.0, 2.0
"""Mean lengths, each exponential."""

ROUTING = ("turn", "two", "any")

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Engine:
    """Of one model on one GPU."""

    base_s: float
    each_s: float
    most: int = 64


ENGINES = {"tiny.en": Engine(0.018, 0.0022), "turbo": Engine(0.075, 0.0016)}


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is there, and what comes."""

    sessions: int
    engines: int
    fronts: int
    slots: int
    """Decodes that all fronts together have at the engines at once, for each engine."""
    arrive_s: float
    """All meetings begin within this, evenly."""
    hold_s: float
    """So long it goes on then."""
    engine: Engine
    lose: int = 0
    """Engines lost at once when all have come and half of `hold_s` is over."""
    admission: bool = True
    seed: int = 1
    routing: str = "turn"
    """One of `ROUTING`: to each in turn, to the less busy of two, to any."""
    stretching: bool = True
    """Refreshes become rarer under load, as the server's do; the engines were measured without."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds; delays of refreshes and finals, asked to answered, in the last half of the time."""

    sessions: int
    """That are let in at the end."""
    most_sessions: int
    refusals: int
    last_in_s: float
    """When the last one of those that are in was let in."""
    refreshes_a_session_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    waited_p95_s: float
    """Of that in the front, before any engine has it."""
    most_stretch: float
    decodes_a_second: float


class Front:
    """A front's own view: what it has at the engines, and whom it lets in."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.gauge = LoadGauge(PARTS * slots, 0.0)
        self.capacity = Capacity(Rules(burst=2 * slots), 0.0)
        self.waiting: deque[int] = deque()
        self.answers, self.took = 0, 0.0
        """Decodes that came back since the last look, and their seconds."""


class Run:
    """One simulation."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.random, self.draw = Random(fleet.seed), np.random.default_rng(fleet.seed)
        count = fleet.sessions
        self.now = 0.0
        self.home: Ints = self.draw.integers(0, fleet.fronts, count)
        self.next: Floats = np.full(count, np.inf)
        self.talks_until: Floats = np.zeros(count)
        self.asked: Floats = np.zeros(count)
        self.begun: Floats = np.zeros(count)
        slots = max(1, fleet.slots * fleet.engines // fleet.fronts)
        self.fronts = [Front(slots) for _ in range(fleet.fronts)]
        self.running: Ints = np.zeros(fleet.fronts, np.int64)
        self.used: Floats = np.zeros(fleet.fronts)
        self.stretch: Floats = np.ones(fleet.fronts)
        self.live: Ints = np.zeros(fleet.fronts, np.int64)
        self.queues: list[deque[int]] = [deque() for _ in range(fleet.engines)]
        self.batches: list[list[int]] = [[] for _ in range(fleet.engines)]
        self.turn = 0
        self.load: Ints = np.zeros(fleet.engines, np.int64)
        self.free_at: Floats = np.zeros(fleet.engines)
        self.alive: Ints = np.arange(fleet.engines)
        arrivals = np.sort(self.draw.uniform(0, fleet.arrive_s, count))
        self.coming = deque((float(at), id) for id, at in enumerate(arrivals))
        self.again: list[list[int]] = [
            [] for _ in range(round((fleet.arrive_s + fleet.hold_s) / LOOK_S) + 30)
        ]
        self.delays: list[Floats] = []
        self.waits: list[Floats] = []
        self.refusals = self.answers = self.most = 0
        self.last_in = self.most_stretch = 0.0

    def run(self) -> Outcome:
        fleet = self.fleet
        end, counted = fleet.arrive_s + fleet.hold_s, fleet.arrive_s + fleet.hold_s / 2
        lost = False
        for step in range(round(end / STEP_S)):
            self.now = step * STEP_S
            if step % round(LOOK_S / STEP_S) == 0:
                self._look(step * STEP_S)
                self._retry(round(self.now / LOOK_S))
            while self.coming and self.coming[0][0] <= self.now:
                self._come(self.coming.popleft()[1])
            if not lost and fleet.lose and self.now >= counted:
                self._lose(fleet.lose)
                lost = True
            self._ask()
            self._serve(counting=self.now >= counted)
        return self._outcome(end - counted)

    # -- meetings --------------------------------------------------------------------------------

    def _come(self, id: int) -> None:
        front = self.fronts[self.home[id]]
        if self.fleet.admission and front.capacity.refusal(self.now) is not None:
            self.refusals += 1
            self.home[id] = self.random.randrange(self.fleet.fronts)
            back = self.now + RETRY_S * self.random.uniform(0.8, 1.2)
            self.again[min(round(back / LOOK_S), len(self.again) - 1)].append(id)
            return
        front.capacity.admit(self.now)
        self.live[self.home[id]] += 1
        self.most = max(self.most, int(self.live.sum()))
        self.last_in = self.now
        self.next[id] = self.now + self.random.random()
        self.talks_until[id] = self.next[id] + self.random.expovariate(1 / SPEECH_S)

    def _retry(self, look: int) -> None:
        ids, self.again[look] = self.again[look], []
        for id in ids:
            self._come(id)

    def _look(self, now: float) -> None:
        """What each front sees of its own load, twice a second."""
        if now == 0:
            return
        running, live = self.used / LOOK_S, self.live
        self.used[:] = 0
        for number, front in enumerate(self.fronts):
            gauge, share = front.gauge, float(running[number])
            # The mean of the time since the last look, as if it had been so all that time.
            gauge.run(round(PARTS * share) - gauge.running, now - LOOK_S)
            oldest = now - self.asked[front.waiting[0]] if front.waiting else 0.0
            if front.answers:
                gauge.served(front.took / front.answers)
                front.answers, front.took = 0, 0.0
            gauge.step(oldest, now)
            self.stretch[number] = factor = gauge.factor if self.fleet.stretching else 1.0
            look = Look(share / front.slots, factor, oldest, None, float(live[number]), 0.0, gauge.slow)
            front.capacity.look(look, now)
        self.most_stretch = max(self.most_stretch, float(self.stretch.max()))

    def _ask(self) -> None:
        """Whoever is due asks for a decode: a refresh, or the final where a pause begins."""
        due = np.flatnonzero(self.next <= self.now)
        self.next[due] = np.inf
        self.asked[due] = self.now
        homes = self.home[due]
        room = np.array([front.slots for front in self.fronts]) - self.running
        tight = np.bincount(homes, minlength=len(room)) > room
        through = due[~tight[homes]]
        for id in due[tight[homes]]:
            self.fronts[self.home[id]].waiting.append(int(id))
        self._send(through)
        for number in np.flatnonzero(room > 0):
            if waiting := self.fronts[number].waiting:
                first = [waiting.popleft() for _ in range(min(len(waiting), int(room[number])))]
                self._send(np.array(first, np.int64))

    def _send(self, ids: Ints) -> None:
        """To engines, as `routing` says."""
        if not len(ids):
            return
        np.add.at(self.running, self.home[ids], 1)
        self.begun[ids] = self.now
        chosen = self._chosen(len(ids))
        np.add.at(self.load, chosen, 1)
        for id, engine in zip(ids.tolist(), chosen.tolist(), strict=True):
            self.queues[engine].append(id)

    def _chosen(self, count: int) -> Ints:
        if self.fleet.routing == "turn":
            self.turn += count
            return self.alive[np.arange(self.turn - count, self.turn) % len(self.alive)]
        one, other = self.alive[self.draw.integers(0, len(self.alive), (2, count))]
        if self.fleet.routing == "two":
            one = np.where(self.load[one] <= self.load[other], one, other)
        chosen: Ints = one
        return chosen

    # -- engines ---------------------------------------------------------------------------------

    def _serve(self, *, counting: bool) -> None:
        self.used += self.running * STEP_S
        done: list[int] = []
        model = self.fleet.engine
        for number in np.flatnonzero((self.free_at <= self.now) & (self.load > 0)).tolist():
            done += self.batches[number]
            self.load[number] -= len(self.batches[number])
            queue = self.queues[number]
            self.batches[number] = batch = [queue.popleft() for _ in range(min(len(queue), model.most))]
            if batch:
                took = (model.base_s + model.each_s * len(batch)) * self.random.lognormvariate(*SPREAD)
                self.free_at[number] = max(self.now - STEP_S, float(self.free_at[number])) + took
        if done:
            self._answer(np.array(done, np.int64), counting=counting)

    def _answer(self, ids: Ints, *, counting: bool) -> None:
        homes = self.home[ids]
        np.add.at(self.running, homes, -1)
        for home, took in zip(homes.tolist(), (self.now - self.begun[ids]).tolist(), strict=True):
            self.fronts[home].answers += 1
            self.fronts[home].took += took
        if counting:
            self.answers += len(ids)
            self.delays.append(self.now - self.asked[ids])
            self.waits.append(self.begun[ids] - self.asked[ids])
        again = np.maximum(self.now, self.asked[ids] + self.stretch[homes])
        over = self.asked[ids] >= self.talks_until[ids]
        begins = self.now + self.draw.exponential(PAUSE_S, len(ids))
        self.talks_until[ids] = np.where(
            over, begins + self.draw.exponential(SPEECH_S, len(ids)), self.talks_until[ids]
        )
        # Speech that ends before the next refresh is due brings its final then.
        again = np.minimum(again, np.maximum(self.talks_until[ids], self.now))
        self.next[ids] = np.where(over, begins, again)

    def _lose(self, count: int) -> None:
        """They die with all that they had, which is asked for again elsewhere."""
        gone, self.alive = self.alive[:count], self.alive[count:]
        for number in gone.tolist():
            ids = np.array([*self.batches[number], *self.queues[number]], np.int64)
            self.batches[number], self.queues[number] = [], deque()
            self.load[number] = 0
            np.add.at(self.running, self.home[ids], -1)
            self._send(ids)

    def _outcome(self, seconds: float) -> Outcome:
        delays = np.concatenate(self.delays)
        p50, p95, p99 = (float(v) for v in np.quantile(delays, (0.5, 0.95, 0.99)))
        live = int(self.live.sum())
        return Outcome(
            sessions=live,
            most_sessions=self.most,
            refusals=self.refusals,
            last_in_s=round(self.last_in, 1),
            refreshes_a_session_s=round(self.answers / seconds / max(1, live), 3),
            p50_s=round(p50, 3),
            p95_s=round(p95, 3),
            p99_s=round(p99, 3),
            waited_p95_s=round(float(np.quantile(np.concatenate(self.waits), 0.95)), 3),
            most_stretch=round(self.most_stretch, 2),
            decodes_a_second=round(self.answers / seconds),
        )


MEASURED = {
    ("tiny.en", 200): (0.05, 0.09, 0.95),
    ("tiny.en", 400): (0.08, 0.31, 0.96),
    ("tiny.en", 800): (1.72, 2.53, 0.49),
    ("turbo", 200): (0.18, 0.28, 0.94),
    ("turbo", 400): (0.64, 1.06, 0.91),
    ("turbo", 800): (1.51, 3.91, 0.51),
}
"""On one H200 (engine/sglang/README.md): refreshes' p50, p95 and how many a stream had a second. The last row
over HTTP, the others in process."""


def simulate(fleet: Fleet) -> Outcome:
    """What becomes of it."""
    return Run(fleet).run()


def check() -> list[str]:
    """The engine's model beside what was measured, as lines of a Markdown table."""
    lines = ["| engine, streams | p50 / p95, s, measured | simulated |", "| --- | --- | --- |"]
    for (name, streams), (p50, p95, _) in MEASURED.items():
        fleet = Fleet(streams, 1, 1, 1024, 1.0, 60.0, ENGINES[name], admission=False, stretching=False)
        found = simulate(fleet)
        lines.append(f"| {name}, {streams} | {p50} / {p95} | {found.p50_s:.2f} / {found.p95_s:.2f} |")
    return lines


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m clients.bench.fleet", description=__doc__)
    parser.add_argument("--check", action="store_true", help="the engine's model beside what was measured")
    parser.add_argument("--model", choices=ENGINES, default="tiny.en")
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--engines", type=int, default=320)
    parser.add_argument("--fronts", type=int, default=500)
    parser.add_argument("--slots", type=int, default=64, help="decodes of all fronts at once for each engine")
    parser.add_argument("--arrive", type=float, default=300.0, help="seconds in which all come")
    parser.add_argument("--hold", type=float, default=60.0, help="seconds that it goes on then")
    parser.add_argument("--lose", type=int, default=0, help="engines lost in the middle of that")
    parser.add_argument("--open", action="store_true", help="let everybody in")
    parser.add_argument("--routing", choices=ROUTING, default="turn", help="turn, the less busy of two, any")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    if options.check:
        print("\n".join(check()))
        return
    fleet = Fleet(
        options.sessions,
        options.engines,
        options.fronts,
        options.slots,
        options.arrive,
        options.hold,
        ENGINES[options.model],
        options.lose,
        not options.open,
        options.seed,
        options.routing,
    )
    print(json.dumps({"fleet": asdict(fleet), "outcome": asdict(simulate(fleet))}))


if __name__ == "__main__":
    main()
