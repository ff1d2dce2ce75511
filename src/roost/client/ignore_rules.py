"""What of a folder is left out: the rules of ``.gitignore`` and ``.roostignore`` files.

As in Git: the last rule that matches decides, ``!`` takes back, a rule with a slash before its end
is about one place and one without about every folder below, ``name/`` is about folders alone, and
of a folder that is left out nothing can be taken back. A file's rules hold for its own folder and
below; ``.roostignore`` comes after ``.gitignore``. Version control and what Python makes by itself
are left out unless a rule takes them back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

FILES = (".gitignore", ".roostignore")
_DEFAULTS = (".git", ".hg", ".svn", "__pycache__/", ".ipynb_checkpoints/")
_MOST_BYTES = 1 << 20


class IgnoreRule(NamedTuple):
    """A line of such a file: what it matches, from its folder on."""

    matches: re.Pattern[str]
    takes_back: bool
    folders_only: bool


class IgnoreRules:
    """Rules that hold in one folder, each with the path of that folder from the rules' own."""

    def __init__(self, rules: Iterable[tuple[str, IgnoreRule]] = ()) -> None:
        self._rules = tuple(rules)

    @classmethod
    def above(cls, folder: Path) -> IgnoreRules:
        """Those that come from outside: defaults, and of a Git repository the folders above."""
        found = cls(("", rule) for line in _DEFAULTS if (rule := parse_rule(line)))
        parents = [folder, *folder.parents]
        tops = [at for at, one in enumerate(parents) if (one / ".git").exists()]
        if tops:
            for parent in reversed(parents[1 : tops[0] + 1]):
                found = found.with_files(parent, folder.relative_to(parent).as_posix())
        return found

    def with_files(self, folder: Path, inside: str = "") -> IgnoreRules:
        """With the rules of the files in a folder; ``inside`` is the way from there to here."""
        own = [
            (inside, rule)
            for name in FILES
            for line in _lines(folder / name)
            if (rule := parse_rule(line))
        ]
        return IgnoreRules((*self._rules, *own)) if own else self

    def entered(self, name: str) -> IgnoreRules:
        """The same rules, seen from a folder inside."""
        return IgnoreRules((_joined(inside, name), rule) for inside, rule in self._rules)

    def leaves_out(self, name: str, *, folder: bool, usually: bool = False) -> bool:
        """Whether something in this folder is left out; ``usually``: if no rule says otherwise."""
        for inside, rule in reversed(self._rules):
            if rule.folders_only and not folder:
                continue
            if rule.matches.fullmatch(_joined(inside, name)):
                return not rule.takes_back
        return usually


def parse_rule(line: str) -> IgnoreRule | None:
    """A line as a rule; None for one that says nothing."""
    text = line.rstrip("\r\n")
    while text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1]
    if not text or text.startswith("#"):
        return None
    takes_back = text.startswith("!")
    text = text[1:] if takes_back else text
    folders_only = text.endswith("/")
    text = text.removesuffix("/") if folders_only else text
    if not text:
        return None
    placed = "/" in text
    pattern = _pattern(text.removeprefix("/"))
    try:
        matches = re.compile(pattern if placed else f"(?:.*/)?{pattern}", re.DOTALL)
    except re.error:  # such as a range the wrong way round: it matches nothing, as in Git
        return None
    return IgnoreRule(matches, takes_back, folders_only)


def _pattern(text: str) -> str:
    """A pattern of Git as a regular expression."""
    found, at = [], 0
    while at < len(text):
        rest = text[at:]
        if rest == "**" and (at == 0 or text[at - 1] == "/"):
            found.append(".+")
            at += 2
        elif rest.startswith("**/") and (at == 0 or text[at - 1] == "/"):
            found.append("(?:.*/)?")
            at += 3
        elif rest[0] == "*":
            found.append("[^/]*")
            at += len(rest) - len(rest.lstrip("*"))
        elif rest[0] == "?":
            found.append("[^/]")
            at += 1
        elif rest[0] == "[" and (end := _class_end(rest)):
            found.append(_class(rest[1:end]))
            at += end + 1
        else:
            at += rest[0] == "\\" and len(rest) > 1
            found.append(re.escape(text[at]))
            at += 1
    return "".join(found)


def _class_end(rest: str) -> int:
    """Where a class of characters ends; 0 if it does not."""
    start = 2 if rest[1:2] in ("!", "^") else 1
    end = start + 1 if rest[start : start + 1] == "]" else start
    while end < len(rest) and rest[end] != "]":
        end += 2 if rest[end] == "\\" else 1
    return end if end < len(rest) else 0


def _class(inner: str) -> str:
    negated = inner[:1] in ("!", "^")
    body = inner[1:] if negated else inner
    escaped = "".join(
        letter if letter in "-\\" or letter.isalnum() else re.escape(letter) for letter in body
    )
    # A class never matches the slash.
    return f"(?!/)[{'^' if negated else ''}{escaped}]"


def _joined(inside: str, name: str) -> str:
    return f"{inside}/{name}" if inside else name


def _lines(file: Path) -> list[str]:
    try:
        with file.open(encoding="utf-8", errors="surrogateescape") as text:
            return text.read(_MOST_BYTES).split("\n")
    except OSError:
        return []
