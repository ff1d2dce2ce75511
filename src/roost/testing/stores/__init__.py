"""What every store must do, whatever database it stands on.

Subclass the suite in a test module and give it a fixture ``place``; pytest does the rest:

    class TestMine(StoreConformance):
        @pytest.fixture
        def place(self) -> TrialDatabase:
            return TrialDatabase("postgresql://...", spoil=..., cut=...)

Appended entries are there, once and in order, or their damage is found; a server that was replaced
writes no more; lists are those of an obvious search; a secret opens only what it should.
"""

from __future__ import annotations

from roost.testing.stores.database import TrialDatabase
from roost.testing.stores.journal import JournalConformance
from roost.testing.stores.views import AccountConformance, PointConformance, ViewConformance

__all__ = [
    "AccountConformance",
    "JournalConformance",
    "PointConformance",
    "StoreConformance",
    "TrialDatabase",
    "ViewConformance",
]


class StoreConformance(JournalConformance, ViewConformance, AccountConformance, PointConformance):
    """All suites for stores at once. Needs a fixture ``place``."""
