"""The mechanism for SGLang: client, two transports, launcher, and the plugin that SGLang itself loads.

Importing this package needs neither sglang nor torch; `plugin`, `models` and `compat` do, and only
SGLang's own processes import those.
"""
