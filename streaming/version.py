"""Which version of ourselves this is."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """As installed; of sources that are not, that they are not."""
    try:
        return metadata.version("seamscribe")
    except metadata.PackageNotFoundError:
        return "(not installed: run from its sources)"
