"""Every noun in the name of a public class is in the glossary, or is plain."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import get_args

from tests.docs.pages import ROOT, page

from roost import policies
from roost.core import Action, Decision, Event
from roost.placement import PLACERS

#: Plain English, and words that every programmer knows.
PLAIN = frozenset((Path(__file__).parent / "plain_words.txt").read_text(encoding="utf-8").split())
_NO_PLURALS = ("series", "kubernetes", "mps", "tls", "postgres")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[a-z0-9]+")


@cache
def glossary() -> frozenset[str]:
    """The words in the first columns of the glossary's tables."""
    cells = re.findall(
        r"^\| ([^|]+) \|", page("docs/architecture.md").section("Words"), re.MULTILINE
    )
    return frozenset(plain(word) for cell in cells for word in re.findall(r"[A-Za-z]+", cell))


def plain(word: str) -> str:
    """A word in lower case and in the singular."""
    word = word.lower()
    if word in _NO_PLURALS:
        return word
    for end, other in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh")):
        if word.endswith(end):
            return word.removesuffix(end) + other
    return word if word.endswith(("ss", "us", "is")) else word.removesuffix("s")


def public_classes() -> dict[str, str]:
    """The public classes of the package, each with its file."""
    found = {}
    for path in sorted((ROOT / "src" / "roost").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name] = str(path.relative_to(ROOT))
    return found


def test_every_noun_of_a_class_name_is_explained() -> None:
    systems = {plain(word) for name in (*policies.names(), *PLACERS) for word in name.split("-")}
    # Events, actions and decisions have tables of their own.
    listed = {kind.__name__ for union in (Event, Action, Decision) for kind in get_args(union)}
    known = glossary() | PLAIN | systems
    unknown = {
        f"{word} (in {name}, {file})"
        for name, file in public_classes().items()
        if name not in listed
        for word in map(plain, _WORD.findall(name))
        if word not in known
    }
    assert not unknown, "in no glossary: " + ", ".join(sorted(unknown))


def test_a_word_is_explained_or_plain_not_both() -> None:
    assert not PLAIN & glossary()
