"""Every placer passes the suite that is shipped for third parties."""

from __future__ import annotations

import pytest

from roost import placement
from roost.core import Placer
from roost.testing.conformance import PlacerConformance


class TestPlacers(PlacerConformance):
    @pytest.fixture(params=placement.PLACERS)
    def placer(self, request: pytest.FixtureRequest) -> Placer:
        return placement.placer(request.param)
