"""The pages of the documentation, taken apart: code blocks, headings, links, sections.

How blocks are read: Python blocks run; a block with a title is a file of the example package; in
console blocks lines after ``$`` are commands, and the lines below one are what it prints, where
``...`` stands for lines left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
NAMES = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md"),
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
)
#: What takes long, needs a large trace, or starts and stops servers is parsed only; so is what
#: goes on for ever, or needs a cluster or a server elsewhere. The demo has a test of its own.
LONG = (
    *("bench", "up", "down", "login", "logout", "servers", "operator", "kubernetes", "--context"),
    *("backup", "restore", "reload"),
)
FOR_EVER = {"-w", "--watch", "--on"}

_FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#{1,6}) (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """A fenced block: its language, its title if it is a file, its text, and where it begins."""

    language: str
    title: str
    text: str
    line: int


class Command(NamedTuple):
    """A line that people are told to type, what it prints as far as shown, and where it stands."""

    text: str
    shown: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class Page:
    """One page."""

    name: str
    text: str

    @property
    def path(self) -> Path:
        return ROOT / self.name

    @property
    def prose(self) -> str:
        """The text without its fenced blocks."""
        return _FENCE.sub("", self.text)

    @property
    def blocks(self) -> list[Block]:
        return [
            Block(match[1], match[2] or "", match[3], self.text[: match.start()].count("\n") + 2)
            for match in _FENCE.finditer(self.text)
        ]

    @property
    def anchors(self) -> set[str]:
        """What can follow ``#`` in a link to this page, as GitHub makes it of headings."""
        return {slug(title) for _, title in _HEADING.findall(self.prose)}

    @property
    def links(self) -> list[str]:
        return _LINK.findall(self.prose)

    def section(self, title: str) -> str:
        """The text below a heading, up to the next one of the same level or above."""
        headings = list(_HEADING.finditer(self._headings_only()))
        for at, match in enumerate(headings):
            if match[2] == title:
                after = (later for later in headings[at + 1 :] if len(later[1]) <= len(match[1]))
                end = next((later.start() for later in after), None)
                return self.text[match.end() : end]
        raise AssertionError(f"{self.name} has no heading {title!r}")

    def _headings_only(self) -> str:
        """The text with fenced blocks blanked out: comments in them look like headings."""
        return _FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), self.text)


@cache
def page(name: str) -> Page:
    return Page(name, (ROOT / name).read_text(encoding="utf-8"))


def slug(title: str) -> str:
    kept = re.sub(r"[^\w\- ]", "", title.strip().lower())
    return kept.replace(" ", "-")


def commands(block: Block) -> list[Command]:
    """The commands of a console block."""
    found: list[Command] = []
    for number, line in enumerate(block.text.splitlines()):
        if line.startswith("$ "):
            found.append(Command(line[2:], (), block.line + number))
        elif found:
            last = found[-1]
            found[-1] = last._replace(shown=(*last.shown, line.rstrip()))
    return found


def runs(arguments: list[str]) -> bool:
    """Whether a command comes to an end soon, with the server of a test; others are parsed only."""
    return not (arguments[0] in LONG or arguments == ["demo"] or FOR_EVER & set(arguments))


def files() -> dict[str, str]:
    """The files of the example package."""
    return {block.title: block.text for block in page("docs/policies.md").blocks if block.title}
