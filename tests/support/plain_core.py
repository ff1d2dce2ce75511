"""Tests that put something in place of a method of the core: of a compiled one that is refused."""

from __future__ import annotations

import pytest

import roost.core.controller

#: A compiled object takes no spy in place of a method.
plain_core = pytest.mark.skipif(
    not roost.core.controller.__file__.endswith(".py"), reason="watches the methods of a core"
)
