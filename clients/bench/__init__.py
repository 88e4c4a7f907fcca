"""Measurements of the whole service from outside, against reference texts."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """`seamscribe bench`; returns its exit status, 2 where the packages it measures with are missing."""
    try:
        from .cli import main as run
    except ImportError as error:
        print(f"{error.name} is missing: install seamscribe[bench]", file=sys.stderr)
        return 2
    return run(argv)
