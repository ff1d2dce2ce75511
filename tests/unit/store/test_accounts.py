from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from roost.store import EventQuery, Store, StoreFull, User, open_store
from roost.store.errors import StoreBroken
from roost.store.rows import QueueRow
from roost.testing.stores.database import entry


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "roost.db"


def test_only_the_hash_of_a_secret_is_kept(path: Path) -> None:
    with open_store(f"sqlite://{path}") as store:
        store.accounts.add_user(User("ada"))
        _, secret = store.accounts.add_token("ada", "laptop")
        assert secret.startswith("roost_")
        assert len(secret) >= 48
    assert secret.encode() not in path.read_bytes()
    assert secret[6:].encode() not in path.read_bytes()
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT hash FROM tokens").fetchall()
    assert rows == [(hashlib.sha256(secret.encode()).hexdigest(),)]


def test_secrets_differ(path: Path) -> None:
    with open_store(f"sqlite://{path}") as store:
        store.accounts.add_user(User("ada"))
        pairs = [store.accounts.add_token("ada", "") for _ in range(20)]
    assert len({secret for _, secret in pairs} | {token.id for token, _ in pairs}) == 40


@pytest.mark.parametrize("when", ["busy", "full"])
def test_noting_a_use_never_costs_the_answer(
    when: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(f"sqlite://{path}") as store:
        store.journal.serve()
        store.accounts.add_user(User("ada"))
        _, secret = store.accounts.add_token("ada", "laptop")
        if when == "full":

            def full(*_: object) -> None:
                raise StoreFull("no space")

            monkeypatch.setattr(store._database, "_begin", full)
            found = store.accounts.find_token(secret)
        else:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                found = store.accounts.find_token(secret)
        assert found is not None
        assert store.accounts.tokens()[0].last_used_at is None


def _appended(store: Store, seq: int) -> None:
    store.journal.append([entry(seq)])


def test_lines_about_accounts_stand_behind_the_last_entry(path: Path) -> None:
    with open_store(f"sqlite://{path}") as store:
        store.journal.serve()
        store.accounts.add_user(User("a"), actor="root")
        _appended(store, 1)
        store.accounts.add_user(User("b"), actor="root")
        store.accounts.add_user(User("c"), actor="root")
        _appended(store, 2)
        lines = store.events.find(EventQuery()).items
        assert [(line.seq, line.n, line.user) for line in lines] == [
            (0, 0, "a"),
            (1, 0, "b"),
            (1, 1, "c"),
        ]
        assert {(line.kind, line.actor) for line in lines} == {("account", "root")}
        later = store.events.find(EventQuery(after=1, after_n=0)).items
        assert [line.user for line in later] == ["c"]


def test_revoking_a_tree_of_tokens_happens_at_once_or_not_at_all(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(f"sqlite://{path}") as store:
        store.accounts.add_user(User("ada"))
        parent, _ = store.accounts.add_token("ada", "parent")
        _, secret = store.accounts.add_token("ada", "child", parent=parent.id)
        told = store.accounts._note

        def full(*given: object, **named: object) -> None:
            if "made with" in str(named["text"]):
                raise StoreFull("no space")
            told(*given, **named)  # type: ignore[arg-type]

        with monkeypatch.context() as patched:
            patched.setattr(store.accounts, "_note", full)
            with pytest.raises(StoreFull):
                store.accounts.revoke_token(parent.id)
        assert [token.revoked_at for token in store.accounts.tokens()] == [None, None]
        assert store.accounts.find_token(secret) is not None
        store.accounts.revoke_token(parent.id)
        assert store.accounts.find_token(secret) is None


def with_all(path: Path) -> str:
    """A database with a user, a token of it made with another one, and a queue; a secret."""
    with open_store(f"sqlite://{path}") as store:
        store.journal.serve()
        store.accounts.add_user(User("ada", "user", unix="ada", jobs=5))
        parent, _ = store.accounts.add_token("ada", "laptop")
        _, secret = store.accounts.add_token("ada", "notebook", 9e9, parent=parent.id)
        store.accounts.set_queue(QueueRow("nlp", 2000, 4000, 2.0, 1, ("ada",)))
    return secret


def alter(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("users", "role = 'admin'"),
        ("users", "unix = 'root'"),
        ("users", "active = 0"),
        ("users", "jobs = 50"),
        ("users", "disk_bytes = 1"),
        ("tokens", "owner = 'eve'"),
        ("tokens", "label = 'Laptop'"),
        ("tokens", "created_at = 1.0"),
        ("tokens", "expires_at = 99e9"),
        ("tokens", "revoked_at = 1.0"),
        ("tokens", "parent = NULL"),
        ("tokens", "sum = '0123456789abcdef'"),
        ("queues", "quota_milli = 1000"),
        ("queues", "limit_milli = NULL"),
        ("queues", "weight = 2.5"),
        ("queues", "submitters = '[\"eve\"]'"),
        ("queues", "cells = '2xnode'"),
        ("queues", "overflows = 0"),
    ],
)
def test_no_damage_is_silent(table: str, change: str, path: Path) -> None:
    secret = with_all(path)
    alter(path, f"UPDATE {table} SET {change}")  # noqa: S608 - of the test
    kind = table[:-1]
    with open_store(f"sqlite://{path}") as store:
        with pytest.raises(StoreBroken, match=rf"^{kind} \S+ is damaged in the store"):
            getattr(store.accounts, table)()
        if kind == "user":
            with pytest.raises(StoreBroken, match="user ada is damaged"):
                store.accounts.find_token(secret)


def test_a_token_of_another_secret_is_damage(path: Path) -> None:
    secret = with_all(path)
    forged = f"roost_{'x' * 43}"
    digest = hashlib.sha256(forged.encode()).hexdigest()
    alter(path, f"UPDATE tokens SET hash = '{digest}' WHERE label = 'notebook'")  # noqa: S608 - of the test
    with open_store(f"sqlite://{path}") as store:
        assert store.accounts.find_token(secret) is None
        with pytest.raises(StoreBroken, match=r"token \S+ is damaged"):
            store.accounts.find_token(forged)


def test_when_a_token_was_used_is_not_part_of_its_checksum(path: Path) -> None:
    secret = with_all(path)
    with open_store(f"sqlite://{path}") as store:
        store.journal.serve()
        assert store.accounts.find_token(secret) is not None
        assert any(token.last_used_at for token in store.accounts.tokens())


def test_what_changes_is_sealed_again(path: Path) -> None:
    with_all(path)
    with open_store(f"sqlite://{path}") as store:
        store.journal.serve()
        store.accounts.add_user(User("eve"))
        (parent,) = (token for token in store.accounts.tokens() if token.parent is None)
        store.accounts.set_user(User("ada", "viewer"))
        store.accounts.set_queue(QueueRow("nlp", weight=3.0))
        child, _ = store.accounts.add_token("eve", "lent", parent=parent.id)
        store.accounts.delete_user("ada")
        assert [user.name for user in store.accounts.users()] == ["eve"]
        (left,) = store.accounts.tokens()
        assert (left.id, left.parent) == (child.id, None)
        assert left.revoked_at is not None
        assert store.accounts.queues() == [QueueRow("nlp", weight=3.0)]


def test_rows_of_an_older_roost_are_sealed_at_the_first_start(path: Path) -> None:
    secret = with_all(path)
    for table in ("users", "tokens", "queues"):
        alter(path, f"ALTER TABLE {table} DROP COLUMN sum")
    for column in ("cells", "overflows"):
        alter(path, f"ALTER TABLE queues DROP COLUMN {column}")
    for table in ("usage_spells", "usage_prices", "budgets"):
        alter(path, f"DROP TABLE {table}")
    alter(path, "UPDATE roost_meta SET schema = 7")
    with open_store(f"sqlite://{path}") as store:
        assert store.accounts.find_token(secret) is not None
        assert [row.id for row in store.accounts.queues()] == ["nlp"]
    alter(path, "UPDATE users SET role = 'admin'")
    with open_store(f"sqlite://{path}") as store, pytest.raises(StoreBroken):
        store.accounts.users()
