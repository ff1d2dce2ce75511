"""Every link leads somewhere, every path and name that is mentioned exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from tests.docs.pages import NAMES, ROOT, page

RECORDS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
#: Lines of a page, when printed.
A_PAGE = 60


@pytest.mark.parametrize("name", NAMES)
def test_links_resolve(name: str) -> None:
    for link in page(name).links:
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        path = (page(name).path.parent / target).resolve() if target else page(name).path
        assert path.is_file(), f"{name}: {link}"
        assert path.is_relative_to(ROOT), f"{name}: {link}"
        if anchor:
            assert anchor in page(str(path.relative_to(ROOT))).anchors, f"{name}: {link}"


@pytest.mark.parametrize("name", NAMES)
def test_headings_have_anchors_of_their_own(name: str) -> None:
    titles = re.findall(r"^#{1,6} (.+)$", page(name).prose, re.MULTILINE)
    if name != "CHANGELOG.md":
        assert len(titles) == len(page(name).anchors)
    assert sum(line.startswith("# ") for line in page(name).prose.splitlines()) == 1


@pytest.mark.parametrize("name", NAMES)
def test_paths_that_are_named_exist(name: str) -> None:
    for path in re.findall(r"`((?:src|tests|docs|\.ci)/[^`\s]*)`", page(name).prose):
        found = list(ROOT.glob(re.sub(r"<\w+>", "*", path)))
        assert found, f"{name}: {path}"


@pytest.mark.parametrize("name", NAMES)
def test_names_in_code_resolve(name: str) -> None:
    for dotted in re.findall(r"`(roost(?:\.\w+)+)`", page(name).prose):
        assert resolves(dotted), f"{name}: {dotted}"


def test_the_records_are_listed_in_order() -> None:
    numbers = [int(path.name[:4]) for path in RECORDS]
    assert numbers == sorted(set(numbers))
    listed = page("docs/architecture.md").section("Decisions on record")
    expected = [f"[{title(path)}](decisions/{path.name})" for path in RECORDS]
    assert re.findall(r"\[.*?\]\(.*?\)", listed) == expected


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_is_at_most_a_page(path: Path) -> None:
    record = page(str(path.relative_to(ROOT)))
    assert title(path).startswith(path.name[:4])
    sections = re.findall(r"^## (.+)$", record.text, re.MULTILINE)
    assert sections == ["Context", "Decision", "Drawbacks", "Alternatives"]
    assert sum(1 + len(line) // 100 for line in record.text.splitlines()) <= A_PAGE


def title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def resolves(dotted: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    module, _, rest = dotted, "", ""
    while module:
        try:
            found: object = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest = f"{last}.{rest}" if rest else last
            continue
        for part in filter(None, rest.split(".")):
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False
