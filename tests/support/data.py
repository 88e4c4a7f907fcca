"""Recordings that lie beside the checkout where they exist."""

from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

needs_data = pytest.mark.skipif(
    not (DATA / "MANIFEST.tsv").is_file(), reason="the shared recordings are not beside this checkout"
)
