"""Expressions of the Common Expression Language, from their text to a tree.

The language is that of ``cel-spec``: literals, selection, calls, operators and the macros. What
Roost does not evaluate (bytes, message literals) is refused here in a sentence.

A tree is at most so deep, and every level of it takes a bounded number of Python's frames: an
expression of ten thousand brackets is a sentence, too.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from typing import NamedTuple, TypeAlias

from roost.errors import InvalidSpec
from roost.kubernetes.objects.values import quoted

#: What a literal can be.
Literal: TypeAlias = bool | int | float | str | None

#: The longest text, which is what API servers accept, and the deepest tree.
_LONGEST, _DEEPEST = 10 * 1024, 40
_MOST, _MOST_UNSIGNED = 1 << 63, 1 << 64

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n\f]+|//[^\n]*)
    |(?P<bytes>[bB][rR]?["'])
    |(?P<text>[rR]?(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''
        |"(?:\\.|[^"\\\r\n])*"|'(?:\\.|[^'\\\r\n])*'))
    |(?P<float>[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |(?P<int>0x[0-9a-fA-F]+[uU]?|[0-9]+[uU]?)
    |(?P<name>[_a-zA-Z][_a-zA-Z0-9]*)
    |(?P<sign>&&|\|\||[=!<>]=|[-+*/%<>!?:.,()\[\]{}])""",
    re.VERBOSE | re.DOTALL,
)
_RAW_ENDS = re.compile(r"""[rR](?P<fence>\"\"\"|'''|"|')(?P<inside>.*)(?P=fence)""", re.DOTALL)
_ESCAPE = re.compile(
    r"\\(?:x(?P<x>[0-9a-fA-F]{2})|X(?P<X>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})"
    r"|U(?P<U>[0-9a-fA-F]{8})|(?P<octal>[0-3][0-7]{2})|(?P<one>.))",
    re.DOTALL,
)
_ESCAPES = dict(zip("abfnrtv\\?\"'`", "\a\b\f\n\r\t\v\\?\"'`", strict=True))
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)
#: How tightly operators bind; those of one line from left to right.
_TIGHTNESS = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in"), 3),
    **dict.fromkeys(("+", "-"), 4),
    **dict.fromkeys(("*", "/", "%"), 5),
}
#: Macros that bind a name in their last argument: how many arguments they have.
MACROS = {"all": (2,), "exists": (2,), "exists_one": (2,), "map": (2, 3), "filter": (2,)}


class Unsigned(int):
    """A whole number that is not negative, by its type."""


class Node(NamedTuple):
    """A part of an expression.

    ``what`` is one of: literal, name, select, has, index, call, list, entries, not, negate, ``?:``,
    bind, an operator or a macro. ``value`` is the literal or the name; of an optional selection it
    ends with a question mark.
    """

    what: str
    value: Literal
    parts: tuple[Node, ...]
    depth: int


def parse(text: str) -> Node:
    """The tree of an expression; InvalidSpec says why there is none."""
    if len(text) > _LONGEST:
        raise InvalidSpec(f"an expression has at most {_LONGEST} letters, this one {len(text)}")
    return _Parser(text).whole()


class _Token(NamedTuple):
    sort: str
    text: str


_END = _Token("end", "")


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise InvalidSpec(f"makes no sense from {quoted(text[at:])} on")
        sort = str(match.lastgroup)
        if sort == "bytes":
            raise InvalidSpec("has bytes in it, which Roost does not compare")
        if sort != "space":
            found.append(_Token(sort, match.group()))
        at = match.end()
    return found


class _Parser:
    """One expression while it is read."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = self._level = 0

    def whole(self) -> Node:
        """All of it."""
        found = self._expression()
        if self._next is not _END:
            raise InvalidSpec(f"makes no sense from {quoted(self._next.text)} on")
        return found

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _take(self) -> _Token:
        found = self._next
        self._at += 1
        return found

    def _has(self, sign: str) -> bool:
        """Whether this comes next; then it is taken."""
        if self._next.text != sign or self._next.sort == "text":
            return False
        self._at += 1
        return True

    def _need(self, sign: str) -> None:
        if not self._has(sign):
            found = quoted(self._next.text) if self._next is not _END else "its end"
            raise InvalidSpec(f"lacks {sign!r} before {found}")

    # -- from the loosest to the tightest --------------------------------------------------------

    def _expression(self) -> Node:
        self._level += 1
        if self._level > _DEEPEST:
            raise InvalidSpec(f"is nested more than {_DEEPEST} deep")
        found = self._operators(1)
        if self._has("?"):
            then = self._operators(1)
            self._need(":")
            found = _node("?:", None, found, then, self._expression())
        self._level -= 1
        return found

    def _operators(self, least: int) -> Node:
        """Operators that bind at least so tightly."""
        found = self._unary()
        while (tight := _TIGHTNESS.get(self._sign, 0)) >= least:
            sign = self._take().text
            right = self._operators(tight + 1)
            if sign in ("&&", "||") and found.what == sign:
                # As a list: of a thousand alternatives the tree is not a thousand deep.
                found = _node(sign, None, *found.parts, right)
            else:
                found = _node(sign, None, found, right)
        return found

    @property
    def _sign(self) -> str:
        found = self._next
        return found.text if found.sort in ("sign", "name") else ""

    def _unary(self) -> Node:
        sign = self._sign
        if sign not in ("!", "-"):
            return self._member()
        count = 0
        while self._has(sign):
            count += 1
        if sign == "-" and self._next.sort in ("int", "float"):
            count -= 1
            found = self._selected(_node("literal", _number(self._take(), negative=True)))
        else:
            found = self._member() if self._sign not in ("!", "-") else self._deeper()
        if count % 2:
            found = _node("not" if sign == "!" else "negate", None, found)
        return found

    def _deeper(self) -> Node:
        self._level += 1
        if self._level > _DEEPEST:
            raise InvalidSpec(f"is nested more than {_DEEPEST} deep")
        found = self._unary()
        self._level -= 1
        return found

    def _member(self) -> Node:
        return self._selected(self._primary())

    def _selected(self, found: Node) -> Node:
        """What is selected of something, and called on it."""
        while True:
            if self._has("."):
                optional = self._has("?")
                name = self._take()
                if name.sort != "name":
                    raise InvalidSpec(f"needs a name after '.', not {quoted(name.text)}")
                if self._next.text == "(" and not optional:
                    self._at += 1
                    found = _called(name.text, found, self._until(")"))
                else:
                    found = _node("select", name.text + "?" * optional, found)
            elif self._has("["):
                optional = self._has("?")
                found = _node("index", "?" * optional, found, self._expression())
                self._need("]")
            else:
                return found

    def _primary(self) -> Node:
        found = self._take()
        if found.sort in ("int", "float"):
            return _node("literal", _number(found))
        if found.sort == "text":
            return _node("literal", _text(found.text))
        if found.sort == "name":
            return self._named(found.text)
        if found.text == "(":
            inner = self._expression()
            self._need(")")
            # What stands in brackets is one thing to what comes after.
            return inner
        if found.text == "[":
            return _node("list", None, *self._until("]"))
        if found.text == "{":
            return self._entries()
        if found.text == ".":
            return self._primary()
        raise InvalidSpec(f"needs a value before {quoted(found.text) if found.text else 'its end'}")

    def _named(self, name: str) -> Node:
        if name in _CONSTANTS:
            return _node("literal", _CONSTANTS[name])
        if name in _RESERVED or name == "in":
            raise InvalidSpec(f"uses the reserved word {name!r}")
        if self._has("("):
            return _called(name, None, self._until(")"))
        return _node("name", name)

    def _until(self, end: str) -> list[Node]:
        """Expressions with commas between them."""
        found: list[Node] = []
        while not self._has(end):
            if self._has("?"):
                raise InvalidSpec("has optional entries in a list, which Roost does not read")
            found.append(self._expression())
            if not self._has(","):
                self._need(end)
                break
        return found

    def _entries(self) -> Node:
        """A map: keys and values by turns."""
        found: list[Node] = []
        while not self._has("}"):
            if self._has("?"):
                raise InvalidSpec("has optional entries in a map, which Roost does not read")
            found.append(self._expression())
            self._need(":")
            found.append(self._expression())
            if not self._has(","):
                self._need("}")
                break
        return _node("entries", None, *found)


def _node(what: str, value: Literal, *parts: Node) -> Node:
    depth = 1 + max((part.depth for part in parts), default=0)
    if depth > 2 * _DEEPEST:
        raise InvalidSpec(f"is nested more than {2 * _DEEPEST} deep")
    return Node(what, value, parts, depth)


def _called(name: str, on: Node | None, given: list[Node]) -> Node:
    """A call, or what a macro stands for."""
    if name == "has" and on is None:
        if len(given) != 1 or given[0].what != "select":
            raise InvalidSpec("has() takes a selection, as in has(device.attributes.x)")
        return _node("has", given[0].value, *given[0].parts)
    if on is not None and on.what == "name" and (on.value, name) == ("cel", "bind"):
        if len(given) != len(("name", "value", "in")) or given[0].what != "name":
            raise InvalidSpec("cel.bind() takes a name, its value and an expression")
        return _node("bind", given[0].value, *given[1:])
    if on is not None and name in MACROS:
        if len(given) not in MACROS[name] or given[0].what != "name":
            raise InvalidSpec(f"{name}() takes a name and an expression")
        return _node(name, given[0].value, on, *given[1:])
    if on is not None and on.what == "name" and on.value in ("optional", "sets"):
        return _node("call", f"{on.value}.{name}", *given)
    if on is None:
        return _node("call", name, *given)
    return _node("call", f".{name}", on, *given)


def _number(token: _Token, *, negative: bool = False) -> int | float:
    text = token.text
    if token.sort == "float":
        return -float(text) if negative else float(text)
    unsigned = text[-1] in "uU"
    digits = text[:-1] if unsigned else text
    found = int(digits, 16) if digits[:2] == "0x" else int(digits[:40])
    if unsigned:
        if negative or found >= _MOST_UNSIGNED:
            raise InvalidSpec(f"{quoted(text)} is no unsigned number of 64 bits")
        return Unsigned(found)
    if found > _MOST - (not negative):
        raise InvalidSpec(f"{quoted(text)} does not fit in 64 bits")
    return -found if negative else found


def _text(token: str) -> str:
    raw = _RAW_ENDS.fullmatch(token)
    if raw is not None:
        return raw["inside"]
    fence = 3 if token[:3] in ('"""', "'''") else 1
    return _ESCAPE.sub(_escaped, token[fence:-fence])


def _escaped(match: re.Match[str]) -> str:
    one = match["one"]
    if one is not None:
        if one not in _ESCAPES:
            raise InvalidSpec(f"has an escape that there is not: {quoted(match.group())}")
        return _ESCAPES[one]
    if match["octal"] is not None:
        return chr(int(match["octal"], 8))
    code = int(next(match[name] for name in "xXuU" if match[name] is not None), 16)
    if code > sys.maxunicode or unicodedata.category(chr(code)) == "Cs":
        raise InvalidSpec(f"{quoted(match.group())} is no character")
    return chr(code)
