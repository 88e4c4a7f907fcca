"""The demo as a script, for a checkout whose command is not on the path: `python demo/run.py [FILE]`.

The same as `seamscribe demo`: the real server, the real engine, real speech, live captions.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from clients.demo import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
