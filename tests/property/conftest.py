"""How hard to look: the same few examples every time, or ``ROOST_EFFORT`` times as many new ones.

ROOST_EFFORT=20 pytest tests/property
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from roost.testing.strategies import EFFORT

settings.register_profile(
    "roost",
    derandomize=EFFORT == 1,
    deadline=None,
    print_blob=False,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
)
settings.load_profile("roost")
