"""What holds for every test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# An example's time is the machine's business: on a busy one the default of 0.2 s fails at random.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
