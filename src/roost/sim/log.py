"""A run as a list of lines, and two runs compared line by line.

Each line is one JSON object: an event, a decision or an action, with its time. Two runs that should
be equal are equal to the last byte; where they are not, the first difference is where to look. A
run that was saved and resumed has a log for each part: one after the other they are the whole log.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, TextIO
from uuid import uuid4

from roost.core.actions import Action
from roost.core.decisions import Decision
from roost.core.events import Event
from roost.errors import InvalidSpec, NotFound

_CONTEXT = 3


class LogWriter:
    """An observer that writes every batch as lines."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __call__(
        self, events: Sequence[Event], decisions: Sequence[Decision], actions: Sequence[Action]
    ) -> None:
        """Write one batch."""
        if not events:
            return
        now = events[0].time
        for what, items in (("event", events), ("decision", decisions), ("action", actions)):
            for item in items:
                self._out.write(_line(now, what, item))


@contextmanager
def write_log(path: str | os.PathLike[str]) -> Iterator[LogWriter]:
    """An observer that writes to a file, which is there only once the run is over.

    What goes wrong on the way leaves an older file as it was. A pipe or a device is written to
    while the run goes on.
    """
    # A link stays one: what it leads to is replaced.
    place, target = Path(path), Path(os.path.realpath(path))
    try:
        if place.exists() and not place.is_file():
            with place.open("w", encoding="utf-8") as out:
                yield LogWriter(out)
            return
        # In the same folder, so that the last step is a rename.
        draft = target.with_name(f".{uuid4().hex}.tmp")
        try:
            with draft.open("x", encoding="utf-8") as out:
                yield LogWriter(out)
            draft.replace(target)
        finally:
            # Only a run that failed leaves a draft: after the rename there is none.
            with suppress(OSError):
                draft.unlink()
    except BrokenPipeError:
        raise  # the reader of the pipe has gone
    except OSError as error:
        raise InvalidSpec(f"cannot write {path}: {error.strerror}") from error


@dataclass(slots=True)
class Difference:
    """Where two logs part, what stood before, and how many lines of each kind they have."""

    line: int | None
    before: tuple[str, ...]
    left: str | None
    right: str | None
    left_counts: Counter[str] = field(default_factory=Counter)
    right_counts: Counter[str] = field(default_factory=Counter)

    @property
    def same(self) -> bool:
        """Whether there is no difference."""
        return self.line is None


def compare_logs(left: str | Path, right: str | Path) -> Difference:
    """Compare two logs line by line."""
    before: deque[str] = deque(maxlen=_CONTEXT)
    found = Difference(None, (), None, None)
    for number, (one, other) in enumerate(zip_longest(_lines(left), _lines(right)), start=1):
        if one is not None:
            found.left_counts[_kind(one, left, number)] += 1
        if other is not None:
            found.right_counts[_kind(other, right, number)] += 1
        if found.line is None and one != other:
            found.line, found.before = number, tuple(before)
            found.left, found.right = one, other
        elif found.line is None and one is not None:
            before.append(one)
    return found


def _lines(path: str | Path) -> Iterator[str]:
    try:
        with Path(path).open(encoding="utf-8") as file:
            for line in file:
                yield line.rstrip("\n")
    except FileNotFoundError:
        raise NotFound(f"no such file: {path}") from None
    except UnicodeDecodeError:
        raise InvalidSpec(f"{path} is not a Roost event log: it is not text") from None
    except OSError as error:
        raise InvalidSpec(f"cannot read {path}: {error.strerror}") from None


def _kind(line: str, path: str | Path, number: int) -> str:
    try:
        return str(json.loads(line)["kind"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidSpec(f"{path}, line {number} is not a line of a Roost event log") from None


def _line(now: float, what: str, item: Event | Decision | Action) -> str:
    content: dict[str, Any] = {"time": now, what: type(item).__name__}
    kind = f"{what} {type(item).__name__}"
    for name in (entry.name for entry in dataclasses.fields(item)):
        if name not in ("time", "cause", "spec"):
            content[name] = _plain(getattr(item, name))
    if "kind" in content:  # a GPU kind of an event's own, which must not hide that of the line
        content["gpu_kind"] = content.pop("kind")
    return json.dumps({"kind": kind, **content}, separators=(",", ":")) + "\n"


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value
