"""Measurements of the whole service from outside, against reference texts."""
