"""How much space a folder takes, whatever is in it."""

from __future__ import annotations

import os
from pathlib import Path

from roost.files import file_share, tree_bytes


def test_sparse_files_and_further_names_take_no_space(tmp_path: Path) -> None:
    before = tree_bytes(tmp_path)
    (tmp_path / "full").write_bytes(b"x" * (1 << 20))
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    for number in range(50):
        (tmp_path / f"name-{number}").hardlink_to(tmp_path / "full")
    (tmp_path / "link").symlink_to("/usr")
    assert (1 << 20) <= tree_bytes(tmp_path) - before < (1 << 20) + (64 << 10)


def test_empty_files_count_as_the_part_of_the_disk_that_goes_with_a_file(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / str(number)).touch()
    assert tree_bytes(tmp_path, 5000) >= 100 * 5000
    assert 0 <= file_share(tmp_path) <= 64 << 10
    assert file_share(tmp_path / "none") == 0


def test_nothing_is_too_deep_to_be_counted(tmp_path: Path) -> None:
    """The path of the last file is far longer than any that can be opened."""
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(200):
        os.mkdir("d" * 200, dir_fd=here)
        os.mkdir("side", dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    for name in ("deepest", "side"):
        os.mkdir(name, dir_fd=here)
    fd = os.open("deepest/file", os.O_WRONLY | os.O_CREAT, dir_fd=here)
    os.write(fd, b"x" * (1 << 20))
    os.close(fd)
    os.close(here)
    files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert 1 << 20 <= tree_bytes(tmp_path) < 4 << 20
    assert len(os.listdir("/proc/self/fd")) == files  # noqa: PTH208
    assert tree_bytes(tmp_path, 4096) >= 402 * 4096


def test_a_folder_that_is_not_there_takes_nothing(tmp_path: Path) -> None:
    assert tree_bytes(tmp_path / "none") == 0
    (tmp_path / "link").symlink_to(tmp_path)
    assert tree_bytes(tmp_path / "link") < 64 << 10
