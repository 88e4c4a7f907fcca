"""Models as SGLang should run them (`SGLANG_EXTERNAL_MODEL_PACKAGE`); needs sglang and torch.

SGLang imports this in its schedulers' processes.
"""

from engine.sglang.compat import interleave

interleave()
