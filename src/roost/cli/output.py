"""Printing: tables for people, JSON, YAML and csv for programs, durations as people say them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click


def duration(value: float | None) -> str:
    """Seconds as people say them: 850 s, 14.2 m, 5.2 h, 3.1 d."""
    if value is None:
        return "-"
    for limit, unit, name in ((100, 1, "s"), (6000, 60, "m"), (172800, 3600, "h")):
        if abs(value) < limit:
            return f"{value / unit:.3g} {name}"
    return f"{value / 86400:.3g} d"


def percent(value: float | None) -> str:
    """A fraction as per cent."""
    return "-" if value is None else f"{100 * value:.1f} %"


def number(value: float | None) -> str:
    """A count or a figure with thousands apart."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"  # noqa: PLR2004


#: Makes a padded cell of a column coloured, or leaves it as it is.
Paint = Callable[[str, str], str]


def print_table(rows: Sequence[Mapping[str, str]], paint: Paint | None = None) -> None:
    """Upper-case headers, columns two spaces apart, figures to the right and words to the left."""
    for line in table_lines(rows, paint):
        click.echo(line)


def table_lines(rows: Sequence[Mapping[str, str]], paint: Paint | None = None) -> Iterator[str]:
    """The lines of a table; nothing for no rows."""
    if not rows:
        return
    names = list(rows[0])
    widths = {n: max(len(n), *(len(row[n]) for row in rows)) for n in names}
    words = {n for n in names if any(row[n][:1].isalpha() or row[n] == "*" for row in rows)}
    words.add(names[0])
    head = {n: n.upper() for n in names}
    for line in [head, *rows]:
        cells = {
            n: line[n].ljust(widths[n]) if n in words else line[n].rjust(widths[n]) for n in names
        }
        cells[names[-1]] = cells[names[-1]].rstrip()
        painted = line is not head and paint is not None
        shown = [paint(n, cell) if painted and paint else cell for n, cell in cells.items()]
        yield "  ".join(shown).rstrip()


def print_json(value: Any) -> None:
    """Indented JSON; NaN and infinity do not occur."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def print_yaml(value: Any) -> None:
    """YAML with the keys in their order."""
    import yaml

    click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), nl=False)


def print_csv(rows: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> None:
    """Comma-separated values with a header: ``names``, or those of the first row."""
    out = io.StringIO()
    writer = csv.DictWriter(out, names or list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    click.echo(out.getvalue(), nl=False)
