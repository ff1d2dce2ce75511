"""Every policy passes the suite that is shipped for third parties."""

from __future__ import annotations

import pytest
from tests.support.effort import quick

from roost import policies
from roost.core import Policy
from roost.testing.conformance import PolicyConformance


class TestPolicies(PolicyConformance):
    @pytest.fixture(params=policies.names())
    def policy(self, request: pytest.FixtureRequest) -> Policy:
        return quick(request.param)


class TestPreemptingPoliciesOnAnyDevice(PolicyConformance):
    """The search for victims takes another way where a gang may be scattered."""

    placer = "anywhere"

    @pytest.fixture(params=["srtf", "tiresias", "fair", "alnair", "timeslice", "priority"])
    def policy(self, request: pytest.FixtureRequest) -> Policy:
        return policies.policy(request.param)
