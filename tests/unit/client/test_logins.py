"""Logins are kept for their owner alone, and the server that is meant is found in a fixed order."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from roost.client import NoServer, certificates, logins
from roost.client.endpoints import find
from roost.client.logins import Login
from roost.errors import InvalidSpec, NotFound

LAB = Login("https://lab:8610", "lab-secret", user="ada")
FARM = Login("http://127.0.0.1:7777", "farm-secret")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("ROOST_HOME", str(tmp_path / "home"))
    for name in ("ROOST_URL", "ROOST_TOKEN", "ROOST_ON", "ROOST_CA"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def keep(**found: Login) -> None:
    with logins.changing() as kept:
        for name, login in found.items():
            kept.add(name, login, default=None)


def serve_from(home: Path, url: str = "http://127.0.0.1:1111", **more: str) -> None:
    """A note as a server of this home leaves it, without a process to check."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "server.json").write_text(json.dumps({"url": url, **more}))
    (home / "token").write_text("home-secret\n")


def test_what_is_kept_is_for_its_owner_alone(folder: Path) -> None:
    before = os.umask(0)
    try:
        keep(lab=LAB)
    finally:
        os.umask(before)
    file = logins.path()
    assert file == folder / "config" / "roost" / "servers.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert logins.read().servers == {"lab": LAB}
    assert [path.name for path in file.parent.iterdir()] == ["servers.json"]


def test_a_file_that_others_can_read_is_refused() -> None:
    keep(lab=LAB)
    logins.path().chmod(0o644)
    with pytest.raises(InvalidSpec, match=r"others can read .*chmod 600"):
        logins.read()
    with pytest.raises(InvalidSpec, match="others can read"):
        find(on="lab")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"servers": {"lab": {}}}', '{"servers": {"../x": {"url": "", "to'],
)
def test_a_damaged_file_says_so(text: str) -> None:
    keep(lab=LAB)
    logins.path().write_text(text)
    with pytest.raises(InvalidSpec, match="is damaged; remove it"):
        logins.read()


def test_nothing_is_changed_where_something_is_raised() -> None:
    keep(lab=LAB)
    with pytest.raises(NotFound), logins.changing() as kept:
        kept.named(kept.remove("lab").url)
    assert logins.read().servers == {"lab": LAB}


def test_the_first_is_the_default_and_the_last_that_is_left() -> None:
    keep(lab=LAB, farm=FARM)
    assert logins.read().default == "lab"
    with logins.changing() as kept:
        kept.remove("lab")
    assert logins.read().default == "farm"
    with logins.changing() as kept:
        kept.add("lab", LAB, default=True)
    assert logins.read().default == "lab"


def test_the_order_in_which_a_server_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoServer):
        find()
    keep(lab=LAB, farm=FARM)
    assert find()[:3] == (LAB.url, LAB.token, False)
    serve_from(folder / "home")
    assert find()[:3] == ("http://127.0.0.1:1111", "home-secret", True)
    monkeypatch.setenv("ROOST_URL", "https://elsewhere:1/")
    monkeypatch.setenv("ROOST_TOKEN", "mine")
    assert find()[:3] == ("https://elsewhere:1", "mine", False)
    monkeypatch.setenv("ROOST_ON", "farm")
    assert find()[:3] == (FARM.url, FARM.token, True)
    assert find(on="lab")[:3] == (LAB.url, LAB.token, False)
    assert find("https://third:1", "t")[:3] == ("https://third:1", "t", False)


def test_a_home_that_is_named_is_not_replaced_by_a_login(folder: Path) -> None:
    keep(lab=LAB)
    with pytest.raises(NoServer):
        find(folder=folder / "empty")


def test_a_server_that_was_killed_is_not_replaced_by_a_login(folder: Path) -> None:
    keep(lab=LAB)
    home = folder / "home"
    serve_from(home)
    note = {"url": "http://127.0.0.1:1111", "pid": os.getpid(), "ticks": 1}
    (home / "server.json").write_text(json.dumps(note))
    with pytest.raises(NoServer, match="roost up, or name another: --on lab"):
        find()
    assert find(on="lab").url == LAB.url


def test_the_token_and_the_certificate_are_where_the_note_says(folder: Path) -> None:
    other = folder / "token of mine"
    other.write_text("file-secret\n")
    serve_from(folder / "home", "https://127.0.0.1:1", token_file=str(other), certificate="PEM")
    found = find()
    assert found.token == "file-secret"  # noqa: S105
    assert found.trusted == certificates.TrustedCertificates("PEM", exact=True)
    # Of another server neither.
    assert find("https://127.0.0.1:2")[1:] == ("", True, certificates.TrustedCertificates())


def test_names_are_checked() -> None:
    keep(lab=LAB)
    with pytest.raises(NotFound, match="did you mean 'lab'"):
        find(on="lap")
    with pytest.raises(InvalidSpec, match="two servers"):
        find("http://127.0.0.1:1", on="lab")
    with pytest.raises(InvalidSpec, match="cannot name a server"):
        logins.checked_name("../lab")


def test_a_file_without_certificates_is_no_ca(folder: Path) -> None:
    file = folder / "ca.pem"
    with pytest.raises(NotFound):
        find("https://x:1", ca=file)
    file.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    with pytest.raises(InvalidSpec, match="holds no certificate"):
        find("https://x:1", ca=file)
