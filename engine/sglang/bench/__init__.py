"""Measurements of SGLang under our own dispatcher; `python -m engine.sglang.bench` on a GPU machine.

The README.md above this says what is measured and how to read it.
"""
