"""Rules of what is left out: by example, and as Git itself decides."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from roost.client.folder_scan import scan
from roost.client.ignore_rules import parse_rule


@pytest.mark.parametrize(
    ("line", "matched", "not_matched"),
    [
        ("*.log", ["a.log", "d/e/b.log"], ["a.logs", "log"]),
        ("/top", ["top"], ["d/top"]),
        ("a/b", ["a/b"], ["x/a/b", "a/b/c"]),
        ("**/a/b", ["a/b", "x/y/a/b"], ["ab"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "b/a"]),
        ("a/**/z", ["a/z", "a/b/c/z"], ["a/bz"]),
        ("x?y", ["xay", "d/xby"], ["x/y", "xy"]),
        ("[a-c]1", ["a1", "c1"], ["d1"]),
        ("[!a-c]1", ["d1"], ["a1"]),
        ("[]x]1", ["]1", "x1"], ["y1"]),
        (r"\#a", ["#a"], ["a"]),
        (r"\!a", ["!a"], ["a"]),
        ("a\\ ", ["a "], ["a"]),
        ("a   ", ["a"], ["a "]),
        ("a*b*c", ["aXbYc"], ["aX/bYc"]),
        (".*", [".env", "d/.x"], ["a.b"]),
        ("a.b+c(d)", ["a.b+c(d)"], ["aXb+c(d)"]),
    ],
)
def test_what_a_line_matches(line: str, matched: list[str], not_matched: list[str]) -> None:
    rule = parse_rule(line)
    assert rule is not None
    assert [path for path in matched if not rule.matches.fullmatch(path)] == []
    assert [path for path in not_matched if rule.matches.fullmatch(path)] == []


@pytest.mark.parametrize("line", ["", "   ", "# remark", "/", "!"])
def test_lines_that_say_nothing(line: str) -> None:
    assert parse_rule(line) is None


TREE = [
    *("train.py", "a.log", "keep.log", "build/x.o", "build/keep.o", "src/build/y.o", "src/a.log"),
    *("data/raw/1.bin", "data/small/2.csv", "docs/deep/er/z.md", "docs/z.md", "tmp", "src/tmp/q"),
    *("sub/inner.txt", "sub/other.txt", "sub/deep/inner.txt", "odd name/#x", "env/.secret"),
]
IGNORED = {
    ".gitignore": (
        "*.log\n!keep.log\n/build/*\n!/build/keep.o\ndata/*\n!data/small\ntmp/\ndocs/**/z.md\n"
        "\\#x\n.secret \nsrc/build\n"
    ),
    "sub/.gitignore": "inner.txt\n!deep/inner.txt\n",
    "sub/deep/.gitignore": "inner.txt\n",
}


@pytest.mark.skipif(shutil.which("git") is None, reason="git decides")
def test_as_git_decides(tmp_path: Path) -> None:
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for name, text in IGNORED.items():
        (tmp_path / name).write_text(text)
    git = [
        "git",
        "-C",
        str(tmp_path),
        "-c",
        "core.excludesFile=/dev/null",
        "-c",
        "core.quotePath=no",
    ]
    subprocess.run([*git, "init", "-q"], check=True)  # noqa: S603 - as found
    told = subprocess.run(  # noqa: S603
        [*git, "ls-files", "-oz", "--exclude-standard"], check=True, capture_output=True, text=True
    )
    expected = set(told.stdout.split("\0")) - {""}

    assert set(scan(tmp_path).manifest.files) == expected
    assert {"train.py", "keep.log", "build/keep.o", "data/small/2.csv"} <= expected
    assert not {"a.log", "data/raw/1.bin", "src/tmp/q", "sub/inner.txt"} & expected
    # From a folder inside, the rules of the repository hold as well.
    inside = {name.removeprefix("sub/") for name in expected if name.startswith("sub/")}
    assert set(scan(tmp_path / "sub").manifest.files) == inside


def test_rules_of_our_own_come_last(tmp_path: Path) -> None:
    for name in ("a.log", "b.txt", "__pycache__/m.pyc", "venv/pyvenv.cfg", ".git/HEAD", "x/b.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert set(scan(tmp_path).manifest.files) == {"a.log", "b.txt", "x/b.txt"}
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / ".roostignore").write_text("!a.log\n/b.txt\n!venv/\n!__pycache__/\n.gitignore\n")
    files = {".roostignore", "a.log", "x/b.txt", "venv/pyvenv.cfg", "__pycache__/m.pyc"}
    assert set(scan(tmp_path).manifest.files) == files
