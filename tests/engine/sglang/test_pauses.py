"""The garbage collector leaves alone what was there at the first request."""

from __future__ import annotations

import gc

from engine.sglang.plugin.pauses import settle


def test_what_is_there_is_set_aside_once() -> None:
    settle.cache_clear()
    gc.unfreeze()
    try:
        settle()
        aside = gc.get_freeze_count()
        assert aside > 1000
        later = [[number] for number in range(5000)]
        settle()
        assert gc.get_freeze_count() == aside
        assert len(later) == 5000
    finally:
        gc.unfreeze()
        settle.cache_clear()
