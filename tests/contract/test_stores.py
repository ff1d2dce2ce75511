"""Every store passes the suite that is shipped for third parties."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.support.postgres import PostgresServer

from roost.testing.stores import StoreConformance, TrialDatabase


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    if reason := PostgresServer.missing():
        pytest.skip(reason)
    with PostgresServer() as server:
        yield server


class TestSqlite(StoreConformance):
    @pytest.fixture
    def place(self, tmp_path: Path) -> TrialDatabase:
        path = tmp_path / "roost.db"

        def spoil(statement: str) -> None:
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute(statement)

        return TrialDatabase(f"sqlite://{path}", spoil, (tmp_path / "roost.db.lock").unlink)


class TestPostgres(StoreConformance):
    @pytest.fixture
    def place(self, server: PostgresServer) -> TrialDatabase:
        url = server.database()
        name = urlsplit(url).path.removeprefix("/")

        def spoil(statement: str) -> None:
            server.run(name, statement)

        def cut() -> None:
            server.run(
                name,
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE application_name LIKE 'roost %' AND datname = current_database()",
            )

        return TrialDatabase(url, spoil, cut)
