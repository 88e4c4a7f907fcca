"""From a model's name to a Hugging Face folder that SGLang loads; packaged weights are converted once."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from engine.contract import EngineError
from engine.policies.opening import convert_packaged


def serving_folder(model: str) -> Path:
    """The Hugging Face folder of `model`; packaged weights are converted once, into the cache.

    Raises `EngineError` naming what is missing.
    """
    folder = Path(model).expanduser()
    if _is_serving(folder):
        return folder
    from engine.weights import WeightsError, cache_dir, find_weights

    try:
        source = find_weights(model)
        target = cache_dir() / "serving" / source.name if folder.is_dir() else cache_dir() / "serving" / model
        if not _is_serving(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            # Converted beside its place and moved there whole: two processes may start at once.
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".converting-") as work:
                convert_packaged(source, Path(work) / "model")
                if not _is_serving(target):
                    (Path(work) / "model").rename(target)
        return target
    except (WeightsError, ValueError, OSError) as error:
        raise EngineError("model", str(error), retryable=False) from error


def _is_serving(folder: Path) -> bool:
    try:
        return "model_type" in json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
