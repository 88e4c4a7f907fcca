"""Audio in, hypotheses out. This package imports nothing of `streaming` or `clients`."""
