"""Every error Roost raises on purpose, split by what the caller can do about it.

    RoostError
    ├── InvalidSpec      what you gave is wrong; change it
    │   └── InvalidTrace a row of a file is wrong; it names file, line and column
    ├── NotFound         no such thing; the message names the nearest one
    ├── Forbidden        you have no right to it; ask an administrator
    ├── Conflict         it clashes with what is there (a duplicate id, a wrong state)
    ├── Retryable        try again after ``after`` seconds
    └── Fatal            a promise of Roost itself is broken; stop and report it

Waiting is not an error: a job that has to wait carries a reason (``roost.core.reasons``).
"""

from __future__ import annotations

from collections.abc import Iterable


class RoostError(Exception):
    """Base of all errors that Roost raises on purpose."""


class InvalidSpec(RoostError):
    """A value that a user gave cannot be right."""


class InvalidTrace(InvalidSpec):
    """A row of a trace file is malformed."""

    def __init__(self, file: str, line: int, column: str, expected: str, found: str) -> None:
        super().__init__(
            f"{file}, line {line}, column {column!r}: expected {expected}, found {found!r}"
        )
        self.file, self.line, self.column = file, line, column
        self.expected, self.found = expected, found

    def __reduce__(self) -> tuple[type[InvalidTrace], tuple[str, int, str, str, str]]:
        return InvalidTrace, (self.file, self.line, self.column, self.expected, self.found)


class NotFound(RoostError):
    """A name that nothing here carries."""


class Forbidden(RoostError):
    """Something that the caller has no right to; ``hint`` says what to do instead."""

    def __init__(self, message: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Conflict(RoostError):
    """A request that clashes with the present state."""


class Retryable(RoostError):
    """A passing failure; the same call may work ``after`` seconds from now."""

    def __init__(self, message: str, after: float) -> None:
        super().__init__(message)
        self.after = after


class Fatal(RoostError):
    """One of Roost's own invariants does not hold."""


def unknown(kind: str, name: str, choices: Iterable[str]) -> NotFound:
    """A NotFound that names the nearest of ``choices``."""
    import difflib  # noqa: PLC0415 - only on the way out

    known = sorted(choices)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"one of: {', '.join(known)}"
    return NotFound(f"unknown {kind} {name!r}; {hint}")
