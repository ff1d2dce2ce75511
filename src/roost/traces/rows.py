"""Rows in, jobs out: what the readers of all formats share.

A reader is a function from one row to one job. ``Reading`` feeds it the rows of a file, and deals
with what is wrong: the first bad row raises an InvalidTrace that names file, line, column, what
was expected and what was found; with ``skip_bad_rows`` it is noted in ``Workload.skipped``
instead. Rows that are in order but hold nothing to run (``NoJob``) are always noted there.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from sys import intern
from typing import Literal, Protocol, TypeVar

from roost.core.spec import Range
from roost.errors import InvalidSpec, InvalidTrace
from roost.files import Source, load
from roost.traces.workload import BadRow, TraceJob, Workload

T = TypeVar("T")

#: More than any machine has of anything.
MOST = 10**9
#: Longer than any trace, in seconds: some 30 000 years.
FOREVER = 1e12
_SHOWN = 60
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - naive, as the dates in traces are


class TraceLine:
    """Where in a file a job stands, to say so when it is wrong."""

    __slots__ = ("file", "line")

    def __init__(self, file: str, line: int) -> None:
        self.file, self.line = file, line

    def bad(self, column: str, expected: str, found: str) -> InvalidTrace:
        """Make the error that says what is wrong here."""
        shown = found if len(found) <= _SHOWN else f"{found[:_SHOWN]}…"
        return InvalidTrace(self.file, self.line, column, expected, shown)


class TableRow(TraceLine):
    """One line of a table, with getters that refuse what makes no sense.

    A column that is missing reads as empty cells; an empty cell gives the default, if any.
    """

    __slots__ = ("_cells", "_index")

    def __init__(self, file: str, line: int, index: Mapping[str, int], cells: list[str]) -> None:
        super().__init__(file, line)
        self._index, self._cells = index, cells

    def has(self, column: str) -> bool:
        """Tell whether the table has that column."""
        return column in self._index

    def cell(self, column: str) -> str:
        """Get what the file says, as it is."""
        at = self._index.get(column)
        return "" if at is None else self._cells[at]

    def text(self, column: str, default: str | None = None) -> str:
        """Get some text, without the blanks around it."""
        found = self.cell(column).strip() or default
        if found is None:
            raise self.bad(column, "some text", "")
        return intern(found)

    def number(self, column: str, default: float | None = None, *, high: float = FOREVER) -> float:
        """Get a number from 0 to ``high``."""
        found = self.cell(column)
        if default is not None and not found:
            return default
        try:
            value = float(found)
        except ValueError:
            value = -1.0
        if not 0 <= value <= high:  # also refuses NaN
            raise self.bad(column, f"a number from 0 to {high:g}", found)
        return value

    def whole(
        self, column: str, default: int | None = None, *, low: int = 0, high: int = MOST
    ) -> int:
        """Get a whole number from ``low`` to ``high``; 4.0 will do for 4."""
        found = self.cell(column)
        if default is not None and not found:
            return default
        value = _whole(found)
        if value is None or not low <= value <= high:
            raise self.bad(column, f"a whole number from {low} to {high}", found)
        return value

    def moment(self, column: str) -> float:
        """Get a date, in seconds since 1970 (UTC if it names no zone), or a plain number."""
        found = self.cell(column)
        if found and "-" not in found:
            return self.number(column)
        value = seconds(found)
        if value is None:
            raise self.bad(column, "a date such as 2017-10-09 07:01:55", found)
        return value

    def choice(self, column: str, choices: Mapping[str, T], default: T | None = None) -> T:
        """Get what the cell stands for."""
        found = self.cell(column).strip()
        value = choices.get(found, None if found else default)
        if value is None:
            raise self.bad(column, f"one of {', '.join(filter(None, choices))}", found)
        return value


class NoJob(Exception):
    """A row that holds nothing to run, and why."""

    def __init__(self, column: str, why: str) -> None:
        super().__init__(column, why)
        self.column, self.why = column, why


class _Named(Protocol):
    @property
    def id(self) -> str: ...


_P = TypeVar("_P", bound=TraceLine)
_N = TypeVar("_N", bound=_Named)


class Reading:
    """One file on its way to a workload."""

    def __init__(self, source: Source, *, skip_bad_rows: bool = False) -> None:
        self.text = load(source)
        self.skipped: list[BadRow] = []
        self._skip_bad_rows = skip_bad_rows
        if not self.text.text.strip():
            msg = f"{self.text.file}: the trace is empty"
            raise InvalidSpec(msg)

    def rows(self, *required: str) -> Iterator[TableRow]:
        """Go through the lines below a header, which must have the required columns."""
        file = self.text.file
        lines = self._lines(strict=True)
        first, header = next(lines, (1, []))
        columns = [name.strip() for name in header]
        index = {name: at for at, name in enumerate(columns)}
        top = TraceLine(file, first)
        for name in required:
            if name not in index:
                raise top.bad(name, "this column in the header", ",".join(columns))
        if len(index) < len(columns):
            twice = next(name for name in columns if columns.count(name) > 1)
            raise top.bad(twice, "each column once in the header", ",".join(columns))
        width = len(columns)
        for line, cells in lines:
            row = TableRow(file, line, index, cells)
            if len(cells) < width or any(cells[width:]):
                self._bad(row.bad(columns[-1], f"{width} columns", ",".join(cells)))
            else:
                yield row

    def bare_rows(self, *headers: tuple[str, ...]) -> Iterator[TableRow]:
        """Go through lines of tab-separated cells without a header; their number tells which."""
        indexes = {len(names): {name: at for at, name in enumerate(names)} for names in headers}
        expected = " or ".join(f"{width} tab-separated columns" for width in sorted(indexes))
        for line, cells in self._lines(delimiter="\t", quoting=csv.QUOTE_NONE):
            if index := indexes.get(len(cells)):
                yield TableRow(self.text.file, line, index, cells)
            else:
                place = TraceLine(self.text.file, line)
                self._bad(place.bad(headers[0][0], expected, "\t".join(cells)))

    def each(self, rows: Iterable[_P], parse: Callable[[_P], _N], *, key: str = "id") -> list[_N]:
        """Parse all rows, each of which has an id of its own in the column ``key``."""
        parsed: list[_N] = []
        seen: set[str] = set()
        for row in rows:
            try:
                one = parse(row)
            except NoJob as reason:
                self.skipped.append(BadRow(row.line, reason.column, reason.why))
            except InvalidTrace as error:
                self._bad(error)
            except InvalidSpec as error:
                self._bad(row.bad(key, "something that can be", str(error)))
            else:
                if one.id in seen:
                    self._bad(row.bad(key, "a name that no line above has", one.id))
                    continue
                seen.add(one.id)
                parsed.append(one)
        if not parsed:
            raise InvalidSpec(self._nothing())
        return parsed

    def workload(
        self,
        rows: Iterable[_P],
        parse: Callable[[_P], TraceJob],
        *,
        key: str = "id",
        from_zero: bool = True,
    ) -> Workload:
        """Put jobs in order of submission; ``from_zero`` counts time from the first of them."""
        jobs = self.each(rows, parse, key=key)
        jobs.sort(key=lambda job: job.submitted_at)
        first = jobs[0].submitted_at
        if from_zero and first:
            jobs = [_earlier(job, first) for job in jobs]
        return Workload(self.text.name, jobs, skipped=sorted(self.skipped, key=lambda r: r.line))

    def _lines(
        self,
        *,
        delimiter: str = ",",
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL,
        strict: bool = False,
    ) -> Iterator[tuple[int, list[str]]]:
        """Go through the line numbers and cells of all lines that are not blank."""
        lines = csv.reader(
            io.StringIO(self.text.text, newline=""),
            delimiter=delimiter,
            quoting=quoting,
            strict=strict,
        )
        while True:
            line = lines.line_num + 1
            try:
                cells = next(lines)
            except StopIteration:
                return
            except csv.Error as error:
                self._bad(InvalidTrace(self.text.file, line, "1", "a line of a table", str(error)))
                continue
            if len(cells) > 1 or (cells and cells[0].strip()):
                yield line, cells

    def _bad(self, error: InvalidTrace) -> None:
        if not self._skip_bad_rows:
            raise error
        why = f"expected {error.expected}, found {error.found!r}"
        self.skipped.append(BadRow(error.line, error.column, why))

    def _nothing(self) -> str:
        if not self.skipped:
            return f"{self.text.file}: the trace is empty, it has no rows"
        one = self.skipped[0]
        return (
            f"{self.text.file}: the trace is empty, all {len(self.skipped)} rows were skipped; "
            f"the first one, line {one.line}, column {one.column!r}: {one.why}"
        )


@cache
def rigid(workers: int) -> Range:
    """Make the range of a job that always has that many workers."""
    return Range(workers, workers)


def seconds(date: str) -> float | None:
    """Count the seconds from 1970 to an ISO date (UTC if it names no zone), if it is one."""
    try:
        moment = datetime.fromisoformat(date.strip())
    except ValueError:
        return None
    # Differences of naive dates cost a third of timestamp(), and there is one per row.
    since = moment - (_EPOCH if moment.tzinfo is None else _EPOCH.replace(tzinfo=UTC))
    value = since.total_seconds()
    return value if value >= 0 else None


def _whole(found: str) -> int | None:
    try:
        return int(found)
    except ValueError:
        pass
    try:
        value = float(found)
    except ValueError:
        return None
    return int(value) if value.is_integer() else None


def _earlier(job: TraceJob, by: float) -> TraceJob:
    at = job.submitted_at - by
    return TraceJob(job.id, at, job.spec, job.work_s, job.outcome, job.fails_at_s)
