"""What goes to a server, by where the server is."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.client.machine import ServerMachine
from roost.client.submissions import prepare

CLUSTER = ServerMachine(same=False, takes_folders=False)


def test_a_script_that_cannot_be_sent_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()

    (note,) = prepare(["python", "train.py", "--lr", "0.1", "x" * 5000], CLUSTER).notes

    assert note.startswith("train.py of this folder is not sent: the image")


def test_nothing_is_said_of_code_that_comes_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    cloned = {"command": ["python", "train.py"], "workdir": {"git": "https://example.org/x.git"}}

    assert prepare(cloned, CLUSTER).notes == ()
    assert prepare(["python", "-m", "roost.train.example"], CLUSTER).notes == ()
