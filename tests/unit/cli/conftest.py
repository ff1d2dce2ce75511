"""What verbs that talk to a server find: a fake one, nobody at all, somebody who types."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.client.fakes import NOW, FakeServer

from roost.cli import connection


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    fake = FakeServer()
    monkeypatch.setattr(connection, "connect", fake.client)
    monkeypatch.setattr(connection, "now", lambda: NOW + 3600)
    return fake


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Somebody at a terminal who types that."""

    def types(text: str) -> None:
        screen = io.StringIO(text)
        monkeypatch.setattr(screen, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdin", screen)

    return types


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOST_HOME", str(tmp_path))
    for name in ("ROOST_URL", "ROOST_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path
