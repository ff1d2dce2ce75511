from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from roost.store import Store, StoreBroken, open_store
from roost.store.metering import UsageQuery
from roost.testing.stores.database import entry
from roost.usage.spells import NodeSpell, Spell

HELD = Spell(1, 1000, None, "a", 1, "ada", "vision", labels=(("x", "y"),), node="n", gpu_milli=500)
WAITS = Spell(2, 0, 5000, "b", 0, "bob", "speech", gpu_milli=1000)
NODE = NodeSpell(3, 0, None, "n", "A100", 4000, 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite://{tmp_path}/roost.db") as store:
        store.journal.serve()
        store.journal.append([entry(1)], [], [], [], [HELD, WAITS, NODE])
        yield store


def test_spells_come_back_as_they_were(store: Store) -> None:
    assert list(store.usage.find(UsageQuery())) == [HELD, WAITS, NODE]
    assert store.usage.open() == ([HELD, NODE], 3)


def test_a_spell_that_ends_takes_the_place_of_what_it_was(store: Store) -> None:
    ended = Spell(**{**HELD.document(), "labels": HELD.labels, "end_ms": 9000})
    store.journal.append([entry(2)], [], [], [], [HELD, ended])
    assert list(store.usage.find(UsageQuery(job="a"))) == [ended]
    assert store.usage.open() == ([NODE], 3)


def test_only_what_lies_in_a_time_is_found(store: Store) -> None:
    assert list(store.usage.find(UsageQuery(since_ms=5000))) == [HELD, NODE]
    assert list(store.usage.find(UsageQuery(until_ms=1000))) == [WAITS, NODE]
    assert list(store.usage.find(UsageQuery(user="bob"))) == [WAITS]


def test_a_flipped_bit_is_told(store: Store, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "roost.db")) as connection, connection:
        connection.execute("UPDATE usage_spells SET begin_ms = 7 WHERE n = 1")
    with pytest.raises(StoreBroken, match="spell 1 of usage is damaged"):
        list(store.usage.find(UsageQuery()))
