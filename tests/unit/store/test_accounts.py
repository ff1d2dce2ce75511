from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from roost.store import EventQuery, Store, StoreFull, User, open_store
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
