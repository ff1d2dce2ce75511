"""YAML with line numbers, from untrusted input; JSON is YAML too.

Only what data needs: texts, numbers, true and false, nothing, lists and mappings. Numbers and truth
values are those of YAML 1.2 (``yes``, ``on``, ``0o17`` and ``1:30`` are texts). Anchors and merge
keys work, as long as what they expand to stays small. No input costs more than a few tens of
milliseconds: everything is counted while it is read. What the fields mean is for others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import yaml

from roost.jobfile.errors import Fault

MAX_TEXT = 1024 * 1024
MAX_DEPTH = 50
MAX_NODES = 20_000
MAX_NUMBER = 1_000_000_000

#: The parser in C; without it the same text takes at least twenty times as long.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_STANDARD = "tag:yaml.org,2002:"
_TAGS = {
    "scalar": {f"{_STANDARD}{name}" for name in ("str", "int", "float", "bool", "null")} | {"!"},
    "list": {f"{_STANDARD}seq", "!"},
    "mapping": {f"{_STANDARD}map", "!"},
}
_NULLS = {"", "~", "null", "Null", "NULL"}
_BOOLS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_SPECIAL = re.compile(r"([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))\Z")
_EMPTY = re.compile(r"(?:[ \t]*+(?:#.*+|\.\.\.[ \t]*+)?\r?\n)*+[ \t]*+(?:#.*+|\.\.\.[ \t\r]*+)?")
#: First letters of plain texts: no number, truth value or null begins with one.
_PLAINLY_TEXT = frozenset("abcdeghijklmopqrsuvwxyzABCDEGHIJKLMOPQRSUVWXYZ_/")
#: No number is longer.
_LONGEST = 64
_MERGE = "<<"


#: Shared by all that are no mappings.
_NO_LINES: dict[str, int] = {}


@dataclass(slots=True)
class YamlNode:
    """A part of the text: a scalar as written, a list or a mapping; ``lines`` are those of keys."""

    line: int
    value: str | list[YamlNode] | dict[str, YamlNode]
    plain: bool = False
    lines: dict[str, int] = field(default_factory=lambda: _NO_LINES)
    size: int = 1
    height: int = 1

    def line_of(self, path: Collection[str | int]) -> int:
        """The line of the deepest part of a path that is there."""
        node, line = self, self.line
        for step in path:
            match node.value:
                case dict() if isinstance(step, str) and step in node.value:
                    node, line = node.value[step], node.lines[step]
                case list() if isinstance(step, int) and step < len(node.value):
                    node = node.value[step]
                    line = node.line
                case _:
                    break
        return line

    def has(self, path: Collection[str | int]) -> bool:
        """Whether there is something at a path."""
        node: YamlNode | None = self
        for step in path:
            entries = node.value if node is not None else None
            match entries:
                case dict() if isinstance(step, str):
                    node = entries.get(step)
                case list() if isinstance(step, int) and step < len(entries):
                    node = entries[step]
                case _:
                    return False
        return node is not None


def load(text: str) -> YamlNode:
    """The one document in a text; raises Fault naming the line."""
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_TEXT:
        raise Fault(0, f"the text is longer than {MAX_TEXT} characters")
    _check_characters(text)
    _check_directives(text)
    try:
        return _Composer(text).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "malformed"
        raise Fault(mark.line + 1 if mark else 0, f"this is not YAML: {what}") from None
    except yaml.YAMLError as error:
        raise Fault(0, f"this is not YAML: {str(error).splitlines()[0]}") from None


def plain(node: YamlNode, texts: Collection[str] = (), *, as_text: bool = False) -> Any:
    """A node as lists, dicts and values; below the keys in ``texts`` scalars stay as written."""
    match node.value:
        case str():
            return _as_written(node) if as_text else _scalar(node)
        case list():
            return [plain(item, texts, as_text=as_text) for item in node.value]
        case dict():
            return {
                key: plain(item, texts, as_text=as_text or key in texts)
                for key, item in node.value.items()
            }


def is_nothing(node: YamlNode) -> bool:
    """Whether a node is null, or nothing at all."""
    return node.plain and node.value in _NULLS


def dump(document: dict[str, Any]) -> str:
    """A document as YAML that reads well and that ``load`` reads back."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def has_comments(text: str) -> bool:
    """Whether there are comments in a text, which was loaded before."""
    last = 0
    try:
        for token in yaml.scan(text, Loader=_Loader):
            if isinstance(token, yaml.ScalarToken):
                if "#" in text[last : token.start_mark.index]:
                    return True
                last = token.end_mark.index
    except yaml.YAMLError:
        return False
    return "#" in text[last:]


def _check_characters(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise Fault(line, "a character that no text can hold (half of a surrogate pair)") from None


def _check_directives(text: str) -> None:
    # The parser compares each %TAG with all before it: 60 000 of them take five seconds.
    at = _past(text, 0)
    if text.startswith("%", at):
        line = text.count("\n", 0, at) + 1
        raise Fault(line, "directives such as %YAML and %TAG are not accepted")


def _past(text: str, at: int) -> int:
    """Skip comments, blank lines and ends of documents."""
    match = _EMPTY.match(text, at)
    return match.end() if match else at


def _as_written(node: YamlNode) -> str | None:
    return None if is_nothing(node) else str(node.value)


def _scalar(node: YamlNode) -> str | float | bool | None:
    text = str(node.value)
    if not node.plain or len(text) > _LONGEST or text[:1] in _PLAINLY_TEXT:
        return text
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _FLOAT.match(text):
        number = _bounded(node.line, text)
        return int(text) if _INT.match(text) else number
    if _SPECIAL.match(text):
        raise Fault(node.line, f"{text} is not a number that can be used here")
    return text


def _bounded(line: int, text: str) -> float:
    number = float(text)
    if not (math.isfinite(number) and abs(number) <= MAX_NUMBER):
        raise Fault(line, f"{text} is above {MAX_NUMBER}; with a unit, or in quotes, it is a text")
    return number


class _Composer:
    """Makes nodes of parser events, and counts."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._next: Callable[[], Any] = _Loader(text).get_event
        self._nodes = 0
        #: None: still being read.
        self._anchors: dict[str, YamlNode | None] = {}

    def document(self) -> YamlNode:
        self._next()  # the stream starts
        if isinstance(self._next(), yaml.StreamEndEvent):
            raise Fault(1, "the file is empty")
        root = self._node(self._next(), 1)
        self._check_rest(self._next().end_mark.index)
        return root

    def _check_rest(self, at: int) -> None:
        # The parser must not go on: what follows may be built to be slow.
        end = _past(self._text, at)
        if end < len(self._text):
            line = self._text.count("\n", 0, end) + 1
            raise Fault(line, "a second document begins; one job per file")

    def _node(self, event: Any, depth: int) -> YamlNode:
        line = event.start_mark.line + 1
        if depth > MAX_DEPTH:
            raise Fault(line, f"nested deeper than {MAX_DEPTH} levels")
        kind = type(event)
        if kind is yaml.AliasEvent:
            return self._alias(str(event.anchor), line, depth)
        self._spend(1, line)
        if event.anchor:
            self._anchors[event.anchor] = None
        if kind is yaml.ScalarEvent:
            node = _read_scalar(event, line)
        elif kind is yaml.SequenceStartEvent:
            node = self._read_list(event, line, depth)
        else:
            node = self._read_mapping(event, line, depth)
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _read_list(self, event: Any, line: int, depth: int) -> YamlNode:
        _check_tag("list", event.tag, line)
        items: list[YamlNode] = []
        node = YamlNode(line, items)
        while not isinstance(inner := self._next(), yaml.SequenceEndEvent):
            items.append(_grown(node, self._node(inner, depth + 1)))
        return node

    def _read_mapping(self, event: Any, line: int, depth: int) -> YamlNode:
        _check_tag("mapping", event.tag, line)
        entries, lines, merged = dict[str, YamlNode](), dict[str, int](), list[YamlNode]()
        node = YamlNode(line, entries, lines=lines)
        while not isinstance(inner := self._next(), yaml.MappingEndEvent):
            name = self._node(inner, depth + 1)
            key = _key(name)
            item = _grown(node, self._node(self._next(), depth + 1))
            if key in lines:
                raise Fault(name.line, f"the key {key[:80]!r} is given twice", key[:80])
            lines[key] = name.line
            if key == _MERGE:
                merged.extend(_sources(item))
            else:
                entries[key] = item
        lines.pop(_MERGE, None)
        for source in merged:
            _merge(entries, lines, source)
        return node

    def _alias(self, name: str, line: int, depth: int) -> YamlNode:
        node = self._anchors.get(name)
        if node is None:
            what = "refers to itself" if name in self._anchors else "refers to nothing"
            raise Fault(line, f"the alias *{name} {what}")
        if depth + node.height - 1 > MAX_DEPTH:
            raise Fault(line, f"nested deeper than {MAX_DEPTH} levels")
        self._spend(node.size, line)
        return node

    def _spend(self, nodes: int, line: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise Fault(line, f"more than {MAX_NODES} values, aliases counted as what they repeat")


def _read_scalar(event: yaml.ScalarEvent, line: int) -> YamlNode:
    if event.tag is None:
        return YamlNode(line, event.value, event.implicit[0])
    _check_tag("scalar", event.tag, line)
    return YamlNode(line, event.value, plain=event.tag not in ("!", f"{_STANDARD}str"))


def _check_tag(kind: str, tag: str | None, line: int) -> None:
    if tag is not None and tag not in _TAGS[kind]:
        raise Fault(line, f"the tag {tag[:80]!r} is not accepted on a {kind}")


def _key(node: YamlNode) -> str:
    key = node.value if isinstance(node.value, str) else None
    if key is None or (key != _MERGE and not isinstance(_scalar(node), str)):
        raise Fault(node.line, "a key that is not a text; write it in quotes")
    return key


def _grown(node: YamlNode, item: YamlNode) -> YamlNode:
    node.size += item.size
    node.height = max(node.height, item.height + 1)
    return item


def _sources(item: YamlNode) -> list[YamlNode]:
    sources = item.value if isinstance(item.value, list) else [item]
    if not all(isinstance(source.value, dict) for source in sources):
        raise Fault(item.line, "<<: takes a mapping, or a list of mappings")
    return sources


def _merge(entries: dict[str, YamlNode], lines: dict[str, int], source: YamlNode) -> None:
    if isinstance(source.value, dict):
        for key, item in source.value.items():
            if key not in entries:
                entries[key], lines[key] = item, source.lines[key]


class _Dumper(yaml.SafeDumper):
    """Block style for scripts, quotes for whatever ``load`` would take for a number."""

    def ignore_aliases(self, data: Any) -> bool:
        """Repeat instead of referring."""
        del data
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(f"{_STANDARD}str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_implicit_resolver(f"{_STANDARD}float", _FLOAT, list("-+.0123456789"))
_Dumper.add_implicit_resolver(f"{_STANDARD}int", _INT, list("-+0123456789"))
