"""Regular expressions that take time in proportion to the text, whatever they say.

``matches`` has RE2's syntax. Python's own engine tries one way after the other, and there are
patterns of twenty letters for which that takes years. So a pattern becomes an automaton here, of
which all states are followed at once. What RE2 has and this has not is refused in a sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from roost.errors import InvalidSpec
from roost.kubernetes.objects.values import quoted

#: Whether a letter is one of those that are meant.
Accepts: TypeAlias = Callable[[str], bool]

#: The most states: a pattern is not repeated more often than that.
_MOST_STATES = 5000
_MOST_REPEATS, _DEEPEST = 1000, 40
_CLASSES: dict[str, Accepts] = {
    "d": lambda c: "0" <= c <= "9",
    "w": lambda c: c.isascii() and (c.isalnum() or c == "_"),
    "s": lambda c: c in " \t\n\f\r",
}
_NAMED: dict[str, Accepts] = {
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "digit": _CLASSES["d"],
    "lower": lambda c: "a" <= c <= "z",
    "upper": lambda c: "A" <= c <= "Z",
    "punct": lambda c: c.isascii() and c.isprintable() and not c.isalnum() and c != " ",
    "space": lambda c: c in " \t\n\v\f\r",
    "word": _CLASSES["w"],
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
}
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}


class _State(NamedTuple):
    """A letter that is read and the state after it; or states that are as good as this one.

    ``where`` is what must hold at this point: ``^``, ``$``, ``b`` or ``B``; empty is nothing.
    """

    accepts: Accepts | None
    after: list[int]
    where: str = ""


class Pattern:
    """A pattern that was understood."""

    def __init__(self, text: str) -> None:
        self._states: list[_State] = []
        last = _Reader(text, self._states).whole()
        self._first, self._last = last

    @property
    def cost(self) -> int:
        """How much work a letter of a text is, at most."""
        return len(self._states)

    def is_in(self, text: str) -> bool:
        """Whether some part of a text matches."""
        now: set[int] = set()
        for at in range(len(text) + 1):
            self._reach(self._first, text, at, now)
            if self._last in now:
                return True
            if at < len(text):
                following: set[int] = set()
                for state in now:
                    accepts, after, _ = self._states[state]
                    if accepts is not None and accepts(text[at]):
                        self._reach(after[0], text, at + 1, following)
                now = following
        return False

    def _reach(self, state: int, text: str, at: int, found: set[int]) -> None:
        """Add a state, and all that are as good at this point of the text."""
        waiting = [state]
        while waiting:
            one = waiting.pop()
            if one in found:
                continue
            accepts, after, where = self._states[one]
            if where and not _holds(where, text, at):
                continue
            found.add(one)
            if accepts is None:
                waiting += after


def _holds(where: str, text: str, at: int) -> bool:
    if where == "^":
        return at == 0
    if where == "$":
        return at == len(text)
    word = _CLASSES["w"]
    before, behind = at > 0 and word(text[at - 1]), at < len(text) and word(text[at])
    return (before != behind) == (where == "b")


@lru_cache(maxsize=256)
def pattern(text: str) -> Pattern:
    """A pattern; InvalidSpec says why it is none."""
    return Pattern(text)


class _Reader:
    """Reads a pattern, and makes its states."""

    def __init__(self, text: str, states: list[_State]) -> None:
        self._text, self._states = text, states
        self._at = self._level = 0
        self._blind = self._dots = False

    def whole(self) -> tuple[int, int]:
        """The first and the last state."""
        first, last = self._either()
        if self._at < len(self._text):
            raise self._wrong("has a bracket too many")
        return first, last

    def _wrong(self, why: str) -> InvalidSpec:
        return InvalidSpec(f"the pattern {quoted(self._text)} {why}")

    def _state(self, accepts: Accepts | None = None, where: str = "") -> int:
        if len(self._states) >= _MOST_STATES:
            raise self._wrong("is too large")
        self._states.append(_State(accepts, [], where))
        return len(self._states) - 1

    def _join(self, state: int, after: int) -> None:
        self._states[state].after.append(after)

    @property
    def _next(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self) -> str:
        found = self._next
        if not found:
            raise self._wrong("ends too soon")
        self._at += 1
        return found

    def _has(self, what: str) -> bool:
        if not self._text.startswith(what, self._at):
            return False
        self._at += len(what)
        return True

    def _either(self) -> tuple[int, int]:
        """Alternatives."""
        self._level += 1
        if self._level > _DEEPEST:
            raise self._wrong("is nested too deeply")
        first, last = self._state(), self._state()
        while True:
            begin, end = self._row()
            self._join(first, begin)
            self._join(end, last)
            if not self._has("|"):
                self._level -= 1
                return first, last

    def _row(self) -> tuple[int, int]:
        """One after the other."""
        first = last = self._state()
        while self._next not in ("", "|", ")"):
            begin, end = self._repeated()
            self._join(last, begin)
            last = end
        return first, last

    def _repeated(self) -> tuple[int, int]:
        start = self._at
        blind, dots = self._blind, self._dots
        first, last = self._one()
        times = self._times()
        if times is None:
            return first, last
        end = self._at
        least, most = times
        begin = tail = self._state()
        for number in range(max(least, most or 0, 1 if most is None else 0)):
            if number:  # read it once more, for states of its own
                self._at, self._blind, self._dots = start, blind, dots
                first, last = self._one()
            self._join(tail, first)
            if number >= least:
                self._join(tail, end_state := self._state())
                self._join(last, end_state)
                last = end_state
            tail = last
        self._at = end
        if most is None:
            self._join(tail, first)
            after = self._state()
            self._join(tail, after)
            if least == 0:
                self._join(begin, after)
            tail = after
        return begin, tail

    def _times(self) -> tuple[int, int | None] | None:
        """How often; None if just once."""
        if self._next in ("*", "+", "?") and self._next:
            sign = self._take()
            found = {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        elif self._next == "{" and (given := self._braces()) is not None:
            found = given
        else:
            return None
        self._has("?")  # which way is preferred does not matter to whether there is one
        if self._next in ("*", "+") and self._next:
            raise self._wrong("repeats what is repeated")
        return found

    def _braces(self) -> tuple[int, int | None] | None:
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : end].partition(",")
        if end < 0 or not least.isdecimal() or not (most.isdecimal() or not most):
            return None  # a plain brace
        self._at = end + 1
        low = int(least[:9])
        high = (int(most[:9]) if most else None) if comma else low
        if low > _MOST_REPEATS or (high is not None and not low <= high <= _MOST_REPEATS):
            raise self._wrong(f"repeats more than {_MOST_REPEATS} times, or less than none")
        return low, high

    def _one(self) -> tuple[int, int]:
        sign = self._take()
        if sign == "(":
            return self._group()
        if sign in "*+?":
            raise self._wrong(f"has nothing before {sign!r}")
        if sign in "^$":
            return self._point(sign)
        if sign == "\\" and self._next in ("b", "B", "A", "z") and self._next:
            return self._point({"A": "^", "z": "$"}.get(name := self._take(), name))
        if sign == ".":
            dots = self._dots
            return self._letter(lambda c: dots or c != "\n")
        if sign == "[":
            return self._letter(self._set())
        if sign == "\\":
            return self._letter(self._escaped())
        return self._letter(self._same(sign))

    def _point(self, where: str) -> tuple[int, int]:
        state = self._state(where=where)
        return state, state

    def _letter(self, accepts: Accepts) -> tuple[int, int]:
        first, last = self._state(accepts), self._state()
        self._join(first, last)
        return first, last

    def _same(self, letter: str) -> Accepts:
        if self._blind:
            low = letter.lower()
            return lambda c: c.lower() == low
        return lambda c: c == letter

    def _group(self) -> tuple[int, int]:
        blind, dots = self._blind, self._dots
        if self._has("?P<") or (self._text.startswith("?<", self._at) and self._has("?<")):
            name, _, _ = self._text[self._at :].partition(">")
            if not name.isidentifier():
                raise self._wrong("looks around, which RE2 does not")
            self._at += len(name) + 1
        elif self._has("?") and self._flags():
            state = self._state()
            return state, state
        found = self._either()
        if not self._has(")"):
            raise self._wrong("lacks a bracket")
        self._blind, self._dots = blind, dots
        return found

    def _flags(self) -> bool:
        """Flags of a group; whether they are of all that follows."""
        on = True
        while True:
            sign = self._take()
            if sign in ":)":
                return sign == ")"
            if sign == "-":
                on = False
            elif sign == "i":
                self._blind = on
            elif sign == "s":
                self._dots = on
            else:
                raise self._wrong(f"has a flag {sign!r}, which Roost does not read")

    def _escaped(self) -> Accepts:
        sign = self._take()
        if sign in "dws":
            return _CLASSES[sign]
        if sign in "DWS":
            inside = _CLASSES[sign.lower()]
            return lambda c: not inside(c)
        return self._same(self._plain(sign))

    def _plain(self, sign: str) -> str:
        """The letter that an escape stands for."""
        if sign in _LETTERS:
            return _LETTERS[sign]
        if sign == "x" and len(code := self._text[self._at : self._at + 2]) == len("00"):
            try:
                found = chr(int(code, 16))
            except ValueError:
                raise self._wrong("has an escape that makes no sense") from None
            self._at += 2
            return found
        if sign.isascii() and sign.isalnum():
            raise self._wrong(f"has \\{sign}, which Roost does not read")
        return sign

    def _set(self) -> Accepts:
        """Letters in square brackets."""
        inside: list[Accepts] = []
        inverse = self._has("^")
        while not inside or not self._has("]"):  # one that comes first is a letter
            inside.append(self._member_of_set())
        accepts = tuple(inside)
        if inverse:
            return lambda c: not any(one(c) for one in accepts)
        return lambda c: any(one(c) for one in accepts)

    def _member_of_set(self) -> Accepts:
        if self._has("[:"):
            name, _, _ = self._text[self._at :].partition(":]")
            negated, name = name.startswith("^"), name.lstrip("^")
            if name not in _NAMED:
                raise self._wrong(f"has a class {quoted(name)} that there is not")
            self._at += len(name) + negated + len(":]")
            known = _NAMED[name]
            return (lambda c: not known(c)) if negated else known
        low = self._take()
        if low == "\\":
            if self._next in ("d", "w", "s", "D", "W", "S") and self._next:
                return self._escaped()
            low = self._plain(self._take())
        if not self._text.startswith("-", self._at) or self._text.startswith("-]", self._at):
            return self._same(low)
        self._take()
        high = self._take()
        if high == "\\":
            high = self._plain(self._take())
        if high < low:
            raise self._wrong("has a range from more to less")
        if self._blind:
            return lambda c: low <= c.lower() <= high or low <= c.upper() <= high
        return lambda c: low <= c <= high
