"""`python -m tests.fuzz`: a table of all targets; exit status 1 where something was found."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence

from .runner import Outcome, run
from .targets import TARGETS


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1_000_000, help="in all (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=[t.name for t in TARGETS], help="may repeat")
    options = parser.parse_args(argv)
    chosen = [t for t in TARGETS if not options.only or t.name in options.only]
    total = sum(t.share for t in chosen)
    outcomes = []
    print(f"{'target':16} {'cases':>8} {'taken':>7} {'a second':>9} {'slowest':>9} {'peak':>9}")
    for target in chosen:
        outcomes.append(run(target, math.ceil(options.cases * target.share / total), options.seed))
        show(outcomes[-1])
    cases, found = sum(o.cases for o in outcomes), sum(len(o.findings) for o in outcomes)
    print(f"{cases} cases in {sum(o.seconds for o in outcomes):.0f} s, {found} findings")
    return 1 if found else 0


def show(outcome: Outcome) -> None:
    o = outcome
    rate = o.cases / max(o.seconds, 1e-9)
    print(
        f"{o.name:16} {o.cases:8} {o.taken:7} {rate:9.0f} {1000 * o.slowest_s:6.1f} ms {o.peak >> 10:5} KiB",
        flush=True,
    )
    for finding in o.findings:
        print(f"    {finding.what}\n        {finding.case!r}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
