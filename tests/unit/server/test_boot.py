"""What a server is told to be: who may reach it, and under which names."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.errors import InvalidSpec
from roost.server.boot import ServerSettings, _check_reach, _devices, _ensure_token, _warnings
from roost.server.home import Home
from roost.server.tls import Tls
from roost.store import open_store


def test_an_address_of_others_needs_a_token_and_better_tls(tmp_path: Path) -> None:
    home = Home(tmp_path)
    wide = ServerSettings(tmp_path, host="0.0.0.0")  # noqa: S104 - that is the point
    with pytest.raises(InvalidSpec, match="--token-file"):
        _check_reach(wide, home)
    _check_reach(ServerSettings(tmp_path), home)
    kept = tmp_path / "elsewhere"
    _check_reach(ServerSettings(tmp_path, host="10.0.0.1", token_file=kept), Home(tmp_path, kept))
    home.keep_token("secret")
    _check_reach(wide, home)
    assert "no TLS" in _warnings(wide)[0]
    safe = ServerSettings(tmp_path, host="10.0.0.1", tls=Tls(tmp_path, tmp_path))
    assert _warnings(safe) == _warnings(ServerSettings(tmp_path)) == ()


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.evil.example", False),
    ],
)
def test_what_only_this_machine_can_reach(tmp_path: Path, host: str, local: bool) -> None:  # noqa: FBT001
    assert ServerSettings(tmp_path, host=host).local is local


def test_names_and_addresses(tmp_path: Path) -> None:
    start = ServerSettings(tmp_path, host="::1", allow=("box.lab",))
    assert start.url(1) == start.local_url(1) == "http://[::1]:1"
    assert ServerSettings(tmp_path, host="0.0.0.0").local_url(1) == "http://127.0.0.1:1"  # noqa: S104
    assert set(start.hosts()) == {"localhost", "127.0.0.1", "::1", "box.lab"}


def test_a_token_that_opens_nothing_is_replaced(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.keep_token("of-another-database")
    with open_store(f"sqlite://{tmp_path}/roost.db") as store:
        store.journal.serve()
        assert _ensure_token(home, store)
        secret = home.token()
        assert secret is not None
        found = store.accounts.find_token(secret)
        assert found is not None
        assert found[1].role == "admin"
        assert not _ensure_token(home, store)
        assert home.token() == secret
        store.accounts.revoke_token(found[0].id)
        assert _ensure_token(home, store)
        assert home.token() != secret


@pytest.mark.parametrize(
    ("asked", "kind", "told"),
    [
        (False, "cpu-slot", "no GPU found: 4 CPU slots stand in on box"),
        (True, "cpu-slot", "4 CPU slots instead of GPUs, as asked, on box"),
        (False, "H200", "4 GPUs H200 with 141 GiB on box"),
    ],
)
def test_devices_are_called_what_they_are(asked: bool, kind: str, told: str) -> None:  # noqa: FBT001
    node = {"id": "box", "gpus": 4, "kind": kind, "gpu_memory_mib": 144_384}
    assert _devices([node], asked=asked) == told
