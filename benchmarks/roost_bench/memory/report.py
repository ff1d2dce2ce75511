"""The figures of a measurement beside their goals; a row is what ``trial`` found of a case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

__all__ = ["figures", "table"]

MIB = 1 << 20
#: A CUDA process with the matrix library and cuDNN, beside what PyTorch's allocator holds [MiB].
CONTEXT_MIB = 760

Row = dict[str, Any]


def figures(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """``name``, ``value``, ``unit``, ``goal`` and ``passed`` of every figure; one for each case."""
    measured = [row for row in rows if row.get("allocated") and row.get("predicted")]
    found = []
    if measured:
        errors = sorted(abs(allocated_error(row)) for row in measured)
        held = sorted(held_error(row) for row in measured)
        found += [
            _figure("allocated median", _at(errors, 0.5), "%", 2.0),
            _figure("allocated p95", _at(errors, 0.95), "%", 6.0),
            _figure("allocated max", errors[-1], "%", 10.0),
            _figure("reserved and context, under by", max(0.0, -held[0]), "%", 3.0),
            _figure("reserved and context, over by, p90", _at(held, 0.9), "%", 12.0),
        ]
        shares = [row["fits"] for row in measured if row.get("fits") is not None]
        if shares:
            found.append(_figure("out of memory in its share", shares.count(False), "jobs", 0.0))
    if pairs := [row for row in rows if row.get("without_gpu") and row.get("predicted")]:
        worst = max(abs(_off(row["without_gpu"], row["predicted"])) for row in pairs)
        found.append(_figure("without a GPU, off by", worst, "%", 3.0))
    failed = sum("error" in row for row in rows)
    found.append(_figure("cases that failed", failed, "cases", 0.0))
    found += [_figure(row["name"], allocated_error(row), "%", 10.0) for row in measured]
    return found


def allocated_error(row: Row) -> float:
    """How far the prediction is above what tensors took at the peak, in per cent."""
    return _off(row["predicted"], row["allocated"])


def held_error(row: Row) -> float:
    """The same of what a share must hold: what the allocator reserved, and the context."""
    context = CONTEXT_MIB * MIB
    seen = context
    if row.get("used_mib"):
        seen = row["used_mib"] * MIB - row["kept_reserved"]
    return _off(row["predicted_held"], row["reserved"] + seen)


def table(rows: Iterable[Row]) -> str:
    """The cases, for people."""
    columns: dict[str, Callable[[Row], Any]] = {
        "case": lambda row: row["name"],
        "allocated": lambda row: row["allocated"] // MIB,
        "predicted": lambda row: row["predicted"] // MIB,
        "off %": lambda row: f"{allocated_error(row):+.1f}",
        "reserved": lambda row: row["reserved"] // MIB,
        "predicted ": lambda row: row["predicted_reserved"] // MIB,
        "held off %": lambda row: f"{held_error(row):+.1f}",
        "used": lambda row: row["used_mib"],
        "fits": lambda row: row["fits"],
        "without GPU": lambda row: row["without_gpu"] // MIB,
        "stand-in": lambda row: row["stand_in"] // MIB,
        "CPU s": lambda row: row["cpu_s"],
    }
    lines = ["\t".join(columns)]
    for row in rows:
        cells = [_cell(row, find) for find in columns.values()]
        lines.append("\t".join(cells) + (f"\t{row['error'][-200:]}" if "error" in row else ""))
    return "\n".join(lines)


def _cell(row: Row, find: Callable[[Row], Any]) -> str:
    try:
        return str(find(row))
    except (KeyError, TypeError):
        return "-"


def _figure(name: str, value: float, unit: str, goal: float) -> dict[str, Any]:
    rounded = round(value, 2)
    passed = abs(rounded) <= goal
    return {"name": name, "value": rounded, "unit": unit, "goal": goal, "passed": passed}


def _off(one: float, other: float) -> float:
    return 100.0 * (one / other - 1.0)


def _at(ordered: Sequence[float], part: float) -> float:
    """The value at this part of the way; of few values, that of the next one up."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
