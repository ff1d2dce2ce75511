"""Huge pages while something is parked, and as they were afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.engines.local.gpu.huge_pages import HugePages, current


@pytest.fixture
def setting(tmp_path: Path) -> Path:
    path = tmp_path / "enabled"
    path.write_text("always [madvise] never\n")
    return path


def test_as_long_as_anybody_needs_them(tmp_path: Path, setting: Path) -> None:
    pages = HugePages(tmp_path / "pages", setting)
    with pages.always():
        with pages.always():
            assert setting.read_text() == "always"
        assert setting.read_text() == "always"
        assert (tmp_path / "pages").read_text() == "madvise"
    assert setting.read_text() == "madvise"
    assert not (tmp_path / "pages").exists()


def test_the_next_warden_puts_back_what_a_killed_one_changed(tmp_path: Path, setting: Path) -> None:
    HugePages(tmp_path / "pages", setting)._change()
    assert setting.read_text() == "always"
    HugePages(tmp_path / "pages", setting).put_back()
    assert setting.read_text() == "madvise"
    setting.write_text("never")
    HugePages(tmp_path / "pages", setting).put_back()
    assert setting.read_text() == "never"  # there is nothing more to put back


def test_what_is_so_already_is_left_alone(tmp_path: Path, setting: Path) -> None:
    setting.write_text("[always] madvise never\n")
    with HugePages(tmp_path / "pages", setting).always():
        assert not (tmp_path / "pages").exists()
    assert current(setting) == "always"


def test_a_machine_that_does_not_let_us(tmp_path: Path) -> None:
    with HugePages(tmp_path / "pages", tmp_path / "nothing").always():
        assert not (tmp_path / "pages").exists()
