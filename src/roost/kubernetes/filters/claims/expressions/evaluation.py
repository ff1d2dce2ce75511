"""Works out what an expression says of a device.

``compiled`` reads an expression once, and refuses in a sentence what Roost does not evaluate.
``Expression.holds`` costs a bounded amount of work: what takes more has no value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, cast

from roost.errors import InvalidSpec
from roost.kubernetes.filters.claims.expressions.functions import (
    FUNCTIONS,
    checked,
    is_equal,
    is_whole,
    no_overload,
)
from roost.kubernetes.filters.claims.expressions.parsing import MACROS, Node, Unsigned, parse
from roost.kubernetes.filters.claims.expressions.patterns import pattern
from roost.kubernetes.filters.claims.expressions.values import (
    Domains,
    EvaluationError,
    Key,
    Optional,
    Value,
)
from roost.kubernetes.objects.values import quoted

#: The most steps, each of about a microsecond: API servers bound what an expression costs, too.
_MOST_STEPS = 100_000
#: The most letters or elements that a value may have.
_LARGEST = 100_000
#: So many letters are worked through in one step.
_LETTERS = 32
_NAMES = frozenset({"device"})
_ORDERS = {"<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}

Names = Mapping[str, Value]


class Expression:
    """An expression that was understood."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tree = parse(text)
        _check(self._tree, _NAMES)

    def holds(self, device: Value) -> bool:
        """Whether it is true of a device; EvaluationError if it is neither true nor false."""
        found = _Evaluation().value(self._tree, {"device": device})
        if not isinstance(found, bool):
            raise EvaluationError("its value is neither true nor false")
        return found


@lru_cache(maxsize=1024)
def compiled(text: str) -> Expression:
    """An expression; InvalidSpec says what Roost does not understand of it."""
    try:
        return Expression(text)
    except InvalidSpec as error:
        raise InvalidSpec(f"the expression {quoted(text)} {error}") from None


def _check(node: Node, names: frozenset[str]) -> None:
    """Refuse names and functions that there are not, wherever in an expression they are."""
    if node.what == "name" and node.value not in names:
        raise InvalidSpec(f"uses {quoted(node.value)}, which Roost does not know")
    if node.what == "call":
        _check_call(node)
    if node.what == "bind" or node.what in MACROS:
        _check(node.parts[0], names)
        inside = names | {str(node.value)}
        for part in node.parts[1:]:
            _check(part, inside)
        return
    for part in node.parts:
        _check(part, names)


def _check_call(node: Node) -> None:
    name = str(node.value)
    known = FUNCTIONS.get(name)
    if known is None:
        raise InvalidSpec(f"calls {name.lstrip('.')}(), which Roost does not know")
    _, least, most = known
    if not least <= len(node.parts) <= most:
        raise InvalidSpec(f"calls {name.lstrip('.')}() with {len(node.parts)} values")
    if name.endswith("matches") and node.parts[1].what == "literal":
        pattern(str(node.parts[1].value))


class _Evaluation:
    """One evaluation, with the steps that are left to it."""

    def __init__(self) -> None:
        self._left = _MOST_STEPS

    def value(self, node: Node, names: Names) -> Value:
        """The value of a part of the expression."""
        self._spend(1)
        how = self._HOW.get(node.what)
        if how is not None:
            return how(self, node, names)
        given = [self.value(part, names) for part in node.parts]
        if len(given) == 1:
            return _of_one(node.what, given[0])
        return self._of_two(node.what, given[0], given[1])

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise EvaluationError("it takes too long")

    def _made(self, found: Value) -> Value:
        """A new list or map: a list of twice the same list, and so on, would grow without bound."""
        self._spend(_weight(found))
        return found

    def _list(self, node: Node, names: Names) -> Value:
        return self._made([self.value(part, names) for part in node.parts])

    def _bound(self, node: Node, names: Names) -> Value:
        """An expression in which a name stands for a value."""
        value, inside = node.parts
        return self.value(inside, {**names, str(node.value): self.value(value, names)})

    def _chosen(self, node: Node, names: Names) -> Value:
        condition, then, otherwise = node.parts
        return self.value(then if self._truth(condition, names) else otherwise, names)

    def _truth(self, node: Node, names: Names) -> bool:
        found = self.value(node, names)
        if not isinstance(found, bool):
            raise no_overload("?:", found)
        return found

    def _joined(self, node: Node, names: Names) -> bool:
        """And, or: what decides is looked for, whatever is wrong with the rest."""
        decisive = node.what == "||"
        wrong: EvaluationError | None = None
        for part in node.parts:
            try:
                found = self.value(part, names)
                if not isinstance(found, bool):
                    raise no_overload(node.what, found)
            except EvaluationError as error:
                if self._left < 0:
                    raise
                wrong = wrong or error
            else:
                if found is decisive:
                    return decisive
        if wrong is not None:
            raise wrong
        return not decisive

    # -- selection -------------------------------------------------------------------------------

    def _selected(self, node: Node, names: Names) -> Value:
        name = str(node.value)
        optional = name.endswith("?")
        return _found(self.value(node.parts[0], names), name.rstrip("?"), optional=optional)

    def _has(self, node: Node, names: Names) -> bool:
        of = self.value(node.parts[0], names)
        name = str(node.value).rstrip("?")
        if isinstance(of, Optional):
            if not of.has:
                return False
            of = of.value
        if not isinstance(of, Mapping):
            raise no_overload("has", of)
        return isinstance(of, Domains) or name in of

    def _indexed(self, node: Node, names: Names) -> Value:
        of, at = (self.value(part, names) for part in node.parts)
        optional = bool(node.value)
        if isinstance(of, Optional):
            if not of.has:
                return of
            of, optional = of.value, True
        if not isinstance(of, list):
            return _found(of, at, optional=optional)
        if isinstance(at, float) and at.is_integer():
            at = int(at)
        if not isinstance(at, int) or isinstance(at, bool):
            raise no_overload("_[_]", of, at)
        if not 0 <= at < len(of):
            if optional:
                return Optional(None, has=False)
            raise EvaluationError(f"index out of bounds: {at}")
        return Optional(of[at]) if optional else of[at]

    def _entries(self, node: Node, names: Names) -> Value:
        found: dict[Key, Value] = {}
        for key, value in zip(node.parts[::2], node.parts[1::2], strict=True):
            name = self.value(key, names)
            if not isinstance(name, str | int):
                raise EvaluationError("unsupported key type")
            if name in found:
                raise EvaluationError("a map has a key twice")
            found[name] = self.value(value, names)
        return self._made(found)

    # -- functions and macros --------------------------------------------------------------------

    def _called(self, node: Node, names: Names) -> Value:
        given = [self.value(part, names) for part in node.parts]
        name = str(node.value)
        work = 0
        for one in given:
            work += len(one) // _LETTERS if isinstance(one, str | list) else 0
        if name.endswith("matches") and all(isinstance(one, str) for one in given):
            work += self._cost_of_pattern(*cast("list[str]", given))
        if name.startswith("sets."):
            work += math.prod(map(_weight, given))
        if name in (".indexOf", ".lastIndexOf"):
            work += sum(map(_weight, given))
        self._spend(work)
        found = FUNCTIONS[name][0](*given)
        self._check_size(found)
        return found

    @staticmethod
    def _cost_of_pattern(text: str, asked: str) -> int:
        try:
            return (len(text) + 1) * pattern(asked).cost // _LETTERS
        except InvalidSpec:
            return 0  # the function says what is wrong

    def _check_size(self, found: Value) -> None:
        if isinstance(found, str | list) and len(found) > _LARGEST:
            raise EvaluationError("a value of it is too large")

    def _macro(self, node: Node, names: Names) -> Value:
        of = self.value(node.parts[0], names)
        if not isinstance(of, list | Mapping):
            raise no_overload(node.what, of)
        over = _Comprehension(self, node, names, [*of])
        match node.what:
            case "all":
                return over.decided(decisive=False)
            case "exists":
                return over.decided(decisive=True)
            case "exists_one":
                return sum(over.truths()) == 1
            case "filter":
                return [
                    one for one, holds in zip(over.elements, over.truths(), strict=True) if holds
                ]
            case _:
                return self._made(over.mapped())

    def inside(self, node: Node, names: Names, name: str, value: Value) -> Value:
        """The value of an expression about an element."""
        return self.value(node, {**names, name: value})

    # -- operators -------------------------------------------------------------------------------

    def _of_two(self, sign: str, one: Value, other: Value) -> Value:
        if sign in ("==", "!="):
            self._spend(_weight(one))
            return is_equal(one, other) is (sign == "==")
        if sign == "in":
            return self._is_in(one, other)
        if sign in _ORDERS:
            order = _order(sign, one, other)
            return order in _ORDERS[sign]
        if sign == "+" and (
            (isinstance(one, str) and isinstance(other, str))
            or (isinstance(one, list) and isinstance(other, list))
        ):
            self._spend((len(one) + len(other)) // _LETTERS)
            joined: Value = cast("Any", one) + other
            self._check_size(joined)
            return joined
        return _arithmetic(sign, one, other)

    def _is_in(self, one: Value, other: Value) -> bool:
        if isinstance(other, Mapping):
            # True is 1 to Python, and not to the language.
            return isinstance(one, str | int) and one in other and _is_key(one, other)
        if not isinstance(other, list):
            raise no_overload("in", one, other)
        self._spend(_weight(other))
        return any(is_equal(one, each) for each in other)

    #: How parts of an expression are worked out that are no operators.
    _HOW: ClassVar[dict[str, Callable[[_Evaluation, Node, Names], Value]]] = {
        "literal": lambda _self, node, _names: node.value,
        "name": lambda _self, node, names: names[str(node.value)],
        "select": _selected,
        "index": _indexed,
        "has": _has,
        "list": _list,
        "entries": _entries,
        "call": _called,
        "bind": _bound,
        "?:": _chosen,
        **dict.fromkeys(("&&", "||"), _joined),
        **dict.fromkeys(MACROS, _macro),
    }


class _Comprehension:
    """A macro over the elements of a list, or the keys of a map."""

    def __init__(
        self, evaluation: _Evaluation, node: Node, names: Names, elements: list[Value]
    ) -> None:
        self._evaluation, self._node, self._names = evaluation, node, names
        self._name = str(node.value)
        self.elements = elements

    def _inside(self, part: Node, element: Value) -> Value:
        return self._evaluation.inside(part, self._names, self._name, element)

    def truths(self) -> Iterable[bool]:
        """Whether it holds of each."""
        for element in self.elements:
            found = self._inside(self._node.parts[1], element)
            if not isinstance(found, bool):
                raise no_overload(self._node.what, found)
            yield found

    def decided(self, *, decisive: bool) -> bool:
        """Of all, or of any: what decides is looked for, whatever is wrong with the rest."""
        wrong: EvaluationError | None = None
        for element in self.elements:
            try:
                found = self._inside(self._node.parts[1], element)
                if not isinstance(found, bool):
                    raise no_overload(self._node.what, found)
            except EvaluationError as error:
                wrong = error
            else:
                if found is decisive:
                    return decisive
        if wrong is not None:
            raise wrong
        return not decisive

    def mapped(self) -> Value:
        """What it makes of each; with a condition, of those of which that holds."""
        *condition, made = self._node.parts[1:]
        chosen = self.elements
        if condition:
            chosen = [one for one, holds in zip(chosen, self.truths(), strict=True) if holds]
        return [self._inside(made, element) for element in chosen]


def _found(of: Value, key: Value, *, optional: bool) -> Value:
    """What is in a map."""
    if isinstance(of, Optional):
        if not of.has:
            return of
        of, optional = of.value, True
    if not isinstance(of, Mapping) or not isinstance(key, str | int):
        raise no_overload("_[_]", of, key)
    if key in of and _is_key(key, of):
        found = of[key]
    elif isinstance(of, Domains):
        found = {}
    elif optional:
        return Optional(None, has=False)
    else:
        raise EvaluationError(f"no such key: {quoted(key)}")
    return Optional(found) if optional else found


def _is_key(key: Key, of: Mapping[Key, Value]) -> bool:
    """Whether a key that compares equal is of the same sort."""
    if isinstance(key, str):
        return True
    return any(known == key and isinstance(known, bool) is isinstance(key, bool) for known in of)


def _of_one(sign: str, value: Value) -> Value:
    if sign == "not" and isinstance(value, bool):
        return not value
    if sign == "negate" and isinstance(value, float):
        return -value
    if sign == "negate" and is_whole(value) and not isinstance(value, Unsigned):
        return checked(-cast("int", value))
    raise no_overload(sign, value)


def _order(sign: str, one: Value, other: Value) -> int | None:
    """Which comes first; None where numbers have no order."""
    if isinstance(one, bool) is not isinstance(other, bool):
        raise no_overload(sign, one, other)
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    if not numbers and not (isinstance(one, str) and isinstance(other, str)):
        raise no_overload(sign, one, other)
    left, right = cast("Any", one), cast("Any", other)
    return next(
        (n for n, so in ((-1, left < right), (0, left == right), (1, left > right)) if so), None
    )


def _arithmetic(sign: str, one: Value, other: Value) -> Value:
    if isinstance(one, float) and isinstance(other, float) and sign != "%":
        return _floating(sign, one, other)
    unsigned = isinstance(one, Unsigned)
    if not is_whole(one) or not is_whole(other) or unsigned is not isinstance(other, Unsigned):
        raise no_overload(sign, one, other)
    left, right = int(cast("int", one)), int(cast("int", other))
    if sign in "/%" and right == 0:
        raise EvaluationError("division by zero" if sign == "/" else "modulus by zero")
    quotient = abs(left) // abs(right) * (1 if (left < 0) is (right < 0) else -1) if right else 0
    match sign:
        case "+":
            found = left + right
        case "-":
            found = left - right
        case "*":
            found = left * right
        case "/":
            found = quotient
        case _:
            found = left - quotient * right
    return checked(found, unsigned=unsigned)


def _floating(sign: str, one: float, other: float) -> float:
    if sign == "/" and not other:
        return (
            math.nan
            if not one or math.isnan(one)
            else math.copysign(math.inf, one) * math.copysign(1, other)
        )
    return {"+": one + other, "-": one - other, "*": one * other, "/": one / (other or 1.0)}[sign]


def _weight(value: Value) -> int:
    """How much work it is to compare a value, with all that is in it."""
    if isinstance(value, str):
        return 1 + len(value) // _LETTERS
    if isinstance(value, Mapping):
        return 1 + sum(map(_weight, value.values()))
    return 1 + sum(map(_weight, value)) if isinstance(value, list) else 1
