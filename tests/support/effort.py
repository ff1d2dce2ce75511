"""How hard tests with random input look: ``ROOST_EFFORT``, 1 unless said otherwise.

    ROOST_EFFORT=4 make test                  # as CI does
    ROOST_EFFORT=80 ROOST_FRESH=1 make test   # other input than last time

The same effort gives the same input every time, unless it is to be fresh.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from roost.core import Policy
from roost.policies import policy

#: The effort at which as many examples are tried as a test asks for.
THOROUGH = 4
EFFORT = int(os.environ.get("ROOST_EFFORT", "1"))

#: Policies whose usual parameters make them slow, and such that do not.
_QUICK = {"pollux": "pollux:population=12,generations=6"}

#: Marks a test that takes long and is for CI.
thorough_only = pytest.mark.skipif(
    EFFORT < THOROUGH, reason=f"takes long: set ROOST_EFFORT={THOROUGH}"
)


def examples(thorough: int) -> int:
    """How many examples to try: so many in a thorough run, else as the effort says."""
    return max(1, thorough * EFFORT // THOROUGH)


def quick(name: str) -> Policy:
    """A policy for tests of the world around it: with parameters that make it quick."""
    return policy(name if EFFORT >= THOROUGH else _QUICK.get(name, name))


def load_profile() -> None:
    """Let no test of Hypothesis fail because the machine is slow."""
    settings.register_profile(
        "roost",
        max_examples=examples(100),
        derandomize=not os.environ.get("ROOST_FRESH"),
        deadline=None,
        print_blob=False,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.filter_too_much,
        ],
    )
    settings.load_profile("roost")
