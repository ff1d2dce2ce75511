"""Whether a server is on this machine: what it says has to be found here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from roost.api.machine import MachineView
from roost.client.machine import _is_here
from roost.server.home import Home
from roost.server.machine import boot_digest


@pytest.fixture
def told(tmp_path: Path) -> MachineView:
    path, nonce = Home(tmp_path).leave_probe()
    return MachineView(boot_digest(), path, nonce, takes_folders=True)


def test_the_same_machine_with_the_same_files(told: MachineView) -> None:
    assert _is_here(told)


def test_another_machine_at_the_end_of_a_tunnel(told: MachineView) -> None:
    assert not _is_here(MachineView("0" * 64, told.path, told.nonce))


def test_the_same_machine_with_other_files(told: MachineView, tmp_path: Path) -> None:
    assert not _is_here(MachineView(told.boot, str(tmp_path / "none"), told.nonce))
    (tmp_path / "probe").write_text("of another server")
    assert not _is_here(told)
    assert not _is_here(MachineView(told.boot))


def test_what_is_no_plain_file_is_not_waited_for(told: MachineView, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(told.path)
    for name in ("pipe", "link", "x\0y"):
        assert not _is_here(MachineView(told.boot, str(tmp_path / name), told.nonce))
