"""Settings of all tests."""

from __future__ import annotations

from tests.support.effort import load_profile

load_profile()
