"""The garbage collector's pauses: half a second for every full collection in a process that holds SGLang.

Nearly all of its objects are code and tables that live as long as the process. Set aside once, they are not
looked at again, and a collection costs what the requests' own objects cost.
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle() -> None:
    """Set aside the objects there are now. Only the first call does: at the first request all is loaded."""
    gc.collect()
    gc.freeze()
