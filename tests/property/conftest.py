"""How hard to look: the same few examples every time, or new ones with ``explore``.

pytest tests/property --hypothesis-profile=explore
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_CALM = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)

settings.register_profile(
    "roost", derandomize=True, deadline=None, print_blob=False, suppress_health_check=_CALM
)
settings.register_profile("explore", settings.get_profile("roost"), derandomize=False)
settings.load_profile("roost")
