"""What this process needs of larger modules, without their cost: all it has to hurry is its start.

``json``, ``signal`` and ``contextlib`` would take longer to import than all of the rest; what is
used here instead are the parts of them that are written in C.
"""

from __future__ import annotations

from _json import encode_basestring_ascii, make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any
else:
    import _signal as signal

__all__ = ["dumps", "ignoring", "loads", "signal"]

_CONSTANTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class _Plain:
    """How to read JSON: as it is."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int = float, int
    parse_constant = _CONSTANTS.__getitem__


class ignoring:  # noqa: N801 - reads as contextlib.suppress does
    """Go on after one of these errors."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self._kinds)


def loads(text: str) -> Any:
    """Read JSON that begins at once; raises ValueError."""
    try:
        value, _ = make_scanner(_Plain())(text, 0)  # type: ignore[arg-type]
    except StopIteration:
        raise ValueError(f"not JSON: {text[:40]!r}") from None
    return value


def dumps(value: object) -> str:
    """Write JSON, in ASCII."""
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if isinstance(value, dict):
        pairs = (f"{encode_basestring_ascii(name)}:{dumps(one)}" for name, one in value.items())
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(dumps, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if value != value:  # noqa: PLR0124 - so is NaN
        return "NaN"
    return repr(value).replace("inf", "Infinity")
