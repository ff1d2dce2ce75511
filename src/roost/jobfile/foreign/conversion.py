"""Reading a foreign description key by key, so that nothing is lost in silence.

``ForeignFields`` wraps a mapping; a key that was not taken by the end becomes a note.
``Conversion`` collects the fields of the job file, each with the line that it came from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from roost.jobfile import yaml
from roost.jobfile.errors import Fault, kind_of
from roost.jobfile.yaml import YamlNode

_MOST_NOTES = 100
_NOT_A_NAME = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 63


def named(text: str, otherwise: str = "job") -> str:
    """The nearest valid name of a job, a role or a queue."""
    name = _NOT_A_NAME.sub("-", text.lower()[:200]).strip("-")
    return name[:_LONGEST_NAME].strip("-") or otherwise


@dataclass(slots=True)
class Conversion:
    """A job file in the making."""

    job: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    sources: list[ForeignFields] = field(default_factory=list)

    def put(self, path: str, value: Any, line: int = 0) -> None:
        """Set a field; ``resources.gpu`` is one inside another."""
        *outer, last = path.split(".")
        at = self.job
        for name in outer:
            at = at.setdefault(name, {})
        at[last] = value
        self.lines[path] = line

    def note(self, line: int, text: str) -> None:
        """Say something about a line."""
        if len(self.notes) < _MOST_NOTES:
            self.notes.append(f"line {line}: {text}" if line else text)

    def line_of(self, path: str) -> int:
        """The line from which a field, or the nearest one around it, came."""
        while path and path not in self.lines:
            path = path.rpartition(".")[0]
        return self.lines.get(path, 0)

    def read(self, node: YamlNode | None, path: str = "") -> ForeignFields:
        """A mapping to take things from."""
        source = ForeignFields(node, path, self)
        self.sources.append(source)
        return source

    def finish(self) -> Conversion:
        """Note whatever was not taken."""
        left = [item for source in self.sources for item in source.left()]
        for line, path in sorted(left):
            self.note(line, f"{path} is not converted")
        self.sources.clear()
        return self


class ForeignFields:
    """A mapping of a foreign description; each key is taken once, or noted at the end."""

    def __init__(self, node: YamlNode | None, path: str, out: Conversion) -> None:
        if node is not None and yaml.is_nothing(node):
            node = None
        if node is not None and not isinstance(node.value, dict):
            found = kind_of(yaml.plain(node, as_text=True))
            raise Fault(node.line, f"{path}: expected a mapping, found {found}", path)
        self.line = node.line if node else 0
        self.path = path
        self._node = node
        self._entries: dict[str, YamlNode] = (
            node.value if node and isinstance(node.value, dict) else {}
        )
        self._left = dict.fromkeys(self._entries)
        self._out = out

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def names(self) -> list[str]:
        """The keys that are there."""
        return list(self._entries)

    def take(self, key: str) -> YamlNode | None:
        """A value as it stands; from now on it counts as converted."""
        self._left.pop(key, None)
        node = self._entries.get(key)
        return None if node is None or yaml.is_nothing(node) else node

    def drop(self, *keys: str) -> None:
        """Let go of what makes no difference here."""
        for key in keys:
            self._left.pop(key, None)

    def line_of(self, key: str) -> int:
        """The line of a key."""
        return self._node.lines.get(key, self.line) if self._node else 0

    def text(self, key: str) -> str:
        """A scalar as it is written; empty when it is missing."""
        node = self.take(key)
        if node is None:
            return ""
        if not isinstance(node.value, str):
            raise self.fault(key, "a text", node)
        return node.value

    def whole(self, key: str, least: int = 0) -> int | None:
        """A whole number that is not below ``least``."""
        node = self.take(key)
        value = yaml.plain(node) if node else None
        if value is None:
            return None
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.fault(key, f"a whole number, at least {least}", node)
        return value

    def truth(self, key: str) -> bool | None:
        """True, false, or nothing there."""
        node = self.take(key)
        value = yaml.plain(node) if node else None
        if value is not None and not isinstance(value, bool):
            raise self.fault(key, "true or false", node)
        return value

    def part(self, key: str) -> ForeignFields:
        """A mapping inside; empty when it is missing."""
        return self._out.read(self.take(key), self.inner(key))

    def items(self, key: str) -> list[YamlNode]:
        """The items of a list; none when it is missing."""
        node = self.take(key)
        if node is None:
            return []
        if not isinstance(node.value, list):
            raise self.fault(key, "a list", node)
        return node.value

    def parts(self, key: str) -> list[ForeignFields]:
        """The mappings in a list."""
        return [
            self._out.read(item, f"{self.inner(key)}[{number}]")
            for number, item in enumerate(self.items(key))
        ]

    def texts(self, key: str) -> list[str]:
        """The texts in a list."""
        found = []
        for item in self.items(key):
            if not isinstance(item.value, str):
                raise self.fault(key, "a list of texts", item)
            found.append(item.value)
        return found

    def inner(self, key: str) -> str:
        """The path of a key."""
        return f"{self.path}.{key}" if self.path else key

    def fault(self, key: str, expected: str, node: YamlNode | None = None) -> Fault:
        """The error for a wrong value; the value itself may be secret."""
        path = self.inner(key)
        if node is None:
            return Fault(self.line_of(key), f"{path}: expected {expected}", path)
        found = kind_of(yaml.plain(node, as_text=True))
        return Fault(self.line_of(key), f"{path}: expected {expected}, found {found}", path)

    def left(self) -> list[tuple[int, str]]:
        """The keys that were not taken."""
        return [(self.line_of(key), self.inner(key)) for key in self._left]
