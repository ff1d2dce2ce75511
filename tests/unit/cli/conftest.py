"""What verbs that talk to a server find: a fake one, nobody at all, somebody who types."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
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
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("ROOST_URL", "ROOST_TOKEN", "ROOST_ON", "ROOST_CA"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def serving() -> Iterator[Callable[[FakeServer], str]]:
    """Lets a fake answer on a port, as far as GET goes."""
    servers = []

    def serve(fake: FakeServer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = fake(httpx.Request("GET", f"http://127.0.0.1{self.path}"))
                self.send_response(answer.status_code)
                self.end_headers()
                self.wfile.write(answer.content)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()
