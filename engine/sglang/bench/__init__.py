"""Measurements of SGLang under our own dispatcher; `python -m engine.sglang.bench` on a GPU machine.

README.md beside this says what is measured and how to read it.
"""
