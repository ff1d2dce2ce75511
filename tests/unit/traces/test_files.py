"""Files: what cannot be read or written says so in one line, and leaves nothing behind."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from roost.errors import InvalidSpec, NotFound, RoostError
from roost.files import TextFile, load, save


def test_a_text_is_read_plain_or_gzipped_with_or_without_a_byte_order_mark(tmp_path: Path) -> None:
    plain, zipped = tmp_path / "a.csv", tmp_path / "a.csv.gz"
    plain.write_bytes(b"\xef\xbb\xbfid\r\n1\r\n")
    zipped.write_bytes(gzip.compress(plain.read_bytes()))

    assert load(plain).text == load(zipped).text == "id\r\n1\r\n"
    assert load(plain).name == load(zipped).name == "a"


def test_a_text_that_is_already_here_is_taken_as_it_is() -> None:
    text = TextFile("log", "x")
    assert load(text) is text
    assert text.name == "log"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe\x00i", "not a text file"),
        (b"id,\x00", "zero bytes"),
        (b"\x1f\x8b not gzip", "damaged gzip"),
        (gzip.compress(b"id" * 99, mtime=0)[:-9], "damaged gzip"),
    ],
    ids=["not UTF-8", "zero bytes", "not gzip", "half a gzip"],
)
def test_what_is_not_text_is_refused_in_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "garbage"
    path.write_bytes(content)
    with pytest.raises(InvalidSpec, match=says) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_a_folder_and_an_impossible_name_are_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(NotFound, match="no such file"):
        load(tmp_path / "none.csv")
    with pytest.raises(InvalidSpec, match="is a folder"):
        load(tmp_path)
    with pytest.raises(RoostError, match="cannot read"):
        load("a\0b")


def test_a_text_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    for name in ("a.csv", "a.csv.gz"):
        save(tmp_path / name, "é\n")
        assert load(tmp_path / name).text == "é\n"
    assert (tmp_path / "a.csv.gz").read_bytes()[:2] == b"\x1f\x8b"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    save(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_full_disk_leaves_the_old_file_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.csv"
    save(path, "old")

    def full(draft: Path, content: bytes) -> int:
        with draft.open("wb") as file:
            file.write(content[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InvalidSpec, match="No space left on device"):
        save(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupt_while_saving_leaves_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_draft: Path, _target: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path / "jobs.csv", "new")
    assert not list(tmp_path.iterdir())


def test_saving_where_no_file_can_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "none" / "a.csv", tmp_path / "file" / "a.csv", "a\0b"):
        with pytest.raises(InvalidSpec, match="cannot write"):
            save(place, "x")
