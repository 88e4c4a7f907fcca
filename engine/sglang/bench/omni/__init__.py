"""Measures and tries a model that SGLang-Omni serves. Its weights are random: its serving is what is real."""
