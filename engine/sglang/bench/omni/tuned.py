"""`seamscribe` with other settings of SGLang-Omni's stage, to see what they bring.

    python -m engine.sglang.bench.omni.tuned KEY=VALUE... engine MODEL ...

A KEY is an argument of the stage's factory (`request_build_max_workers=3`), or `switch_interval`: after so
many seconds the threads of its Python pass on the interpreter's lock.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.sglang.omni import versions

_SWITCH = "switch_interval"


def with_factory(config: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration file with more arguments of its stage's factory."""
    if "runtime_overrides" in config:
        return {**config, "runtime_overrides": {"asr": config["runtime_overrides"]["asr"] | more}}
    stage = config["stages"]["asr"]
    return {**config, "stages": {"asr": stage | {"factory": stage["factory"] | more}}}


def main(argv: list[str]) -> None:
    settings = dict(one.split("=", 1) for one in argv if "=" in one and not one.startswith("-"))
    rest = argv[len(settings) :]
    if rest[:1] != ["engine"]:
        raise SystemExit("say KEY=VALUE..., then engine MODEL ...")
    switch = settings.pop(_SWITCH, None)
    more = {key: json.loads(value) for key, value in settings.items()}
    plain = versions.config
    vars(versions)["config"] = lambda *args: with_factory(plain(*args), more)
    with tempfile.TemporaryDirectory(prefix="seamscribe-tuned-") as place:
        if switch is not None:
            # What a server spawns reads this at its start, and nothing else of ours.
            line = f"import sys; sys.setswitchinterval({float(switch)})\n"
            Path(place, "sitecustomize.py").write_text(line, "utf-8")
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (place, os.environ.get("PYTHONPATH"))))
        sys.argv = ["seamscribe", *rest]
        runpy.run_module("streaming", run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
