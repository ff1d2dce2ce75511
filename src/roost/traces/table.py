"""Roost's own table of jobs: a csv file with one line per job, made to be read by people too.

Only id, submitted_at and work_s are required. A column that is missing, or an empty cell, means
the default of ``JobSpec``; columns in which every job has the default are mostly not written.
Lists are separated by ``|``; roles are JSON. What is written reads back equal to the last bit;
what would not (a name with a line break in it) is refused before anything is written.

The nodes of a workload have a table of their own, since they are of another shape.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import lru_cache
from math import inf
from operator import attrgetter
from sys import float_info
from typing import NamedTuple

from roost.core.cells.site import CellSite
from roost.core.events import Outcome
from roost.core.extras import Extras, check_extras
from roost.core.spec import (
    WHOLE,
    Costs,
    JobId,
    JobSpec,
    Level,
    NodeId,
    NodeSpec,
    Qos,
    QueueId,
    Range,
    Resources,
    Role,
    Way,
)
from roost.core.wire import canonical, decode, encode
from roost.errors import InvalidSpec, InvalidTrace
from roost.files import Source, save
from roost.traces.rows import Reading, TableRow
from roost.traces.workload import TraceJob, Workload

_BIG = 2**63
_BOOLS = {"true": True, "false": False}
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
_QOS = {qos.value: qos for qos in Qos}
_WAYS = {way.value: way for way in Way}
_LEVELS = {level.name.lower(): level for level in Level}


def write_workload(path: str | os.PathLike[str], workload: Workload) -> None:
    """Write the jobs of a workload, all of them or nothing; not its nodes (``write_nodes``)."""
    jobs = workload.jobs
    _check_names("job", [job.id for job in jobs])
    _check_names("queue", {job.spec.queue for job in jobs})
    columns = {column.name: column.cells(jobs) for column in _COLUMNS}
    for column in _COLUMNS:
        if not column.always and set(columns[column.name]) == set(column.cells([_PLAIN])):
            del columns[column.name]
    save(path, _csv(columns, zip(*columns.values(), strict=True)))


def read_table(
    source: Source, *, nodes: Source | None = None, skip_bad_rows: bool = False
) -> Workload:
    """Read a table of jobs, and that of the nodes they run on; times stay as they are."""
    reading = Reading(source, skip_bad_rows=skip_bad_rows)
    rows = reading.rows("id", "submitted_at", "work_s")
    workload = reading.workload(rows, _job, from_zero=False)
    if nodes is not None:
        workload.nodes = read_nodes(nodes)
    return workload


def write_nodes(path: str | os.PathLike[str], nodes: Sequence[NodeSpec]) -> None:
    """Write a table of nodes, all of them or nothing."""
    _check_names("node", [node.id for node in nodes])
    sites = any(node.site is not None for node in nodes)
    names = [field.name for field in fields(NodeSpec) if sites or field.name != "site"]
    save(path, _csv(names, ([_shown(getattr(node, name)) for name in names] for node in nodes)))


def read_nodes(source: Source) -> tuple[NodeSpec, ...]:
    """Read a table of nodes; only their ids are required."""
    reading = Reading(source)
    return tuple(reading.each(reading.rows("id"), _node))


class _Column(NamedTuple):
    """A column: where its value is found in a job, and whether it is written come what may."""

    name: str
    path: str
    always: bool = False

    def cells(self, jobs: Iterable[TraceJob]) -> list[str]:
        show = _shown_roles if self.name == "roles" else _shown
        return [show(value) for value in map(attrgetter(self.path), jobs)]


_PLAIN = TraceJob(JobId(""), 0.0, JobSpec(), 0.0)
_COLUMNS = (
    _Column("id", "id", always=True),
    _Column("submitted_at", "submitted_at", always=True),
    _Column("run_time_s", "spec.run_time_s", always=True),
    _Column("work_s", "work_s", always=True),
    _Column("outcome", "outcome", always=True),
    _Column("queue", "spec.queue", always=True),
    _Column("user", "spec.user"),
    _Column("application", "spec.application"),
    _Column("priority", "spec.priority"),
    _Column("min_workers", "spec.workers.min", always=True),
    _Column("max_workers", "spec.workers.max", always=True),
    _Column("gpus", "spec.resources.gpus", always=True),
    _Column("share_milli", "spec.resources.share_milli"),
    _Column("gpu_memory_mib", "spec.resources.gpu_memory_mib"),
    _Column("qos", "spec.resources.qos"),
    _Column("way", "spec.resources.way"),
    _Column("kinds", "spec.resources.kinds"),
    _Column("cpu_milli", "spec.resources.cpu_milli"),
    _Column("memory_mib", "spec.resources.memory_mib"),
    _Column("extras", "spec.resources.extras"),
    _Column("roles", "spec.roles"),
    _Column("checkpoint_every_s", "spec.costs.checkpoint_every_s"),
    _Column("checkpoint_s", "spec.costs.checkpoint_s"),
    _Column("restart_s", "spec.costs.restart_s"),
    _Column("resize_s", "spec.costs.resize_s"),
    _Column("suspend_s", "spec.costs.suspend_s"),
    _Column("min_run_s", "spec.min_run_s"),
    _Column("max_retries", "spec.max_retries"),
    _Column("preemptible", "spec.preemptible"),
    _Column("within", "spec.within"),
    _Column("cell", "spec.cell"),
    _Column("fails_at_s", "fails_at_s"),
)


def _shown(value: object) -> str:
    match value:
        case None:
            return ""
        case CellSite():
            return canonical(encode(value))
        case bool() | Level():
            return str(getattr(value, "name", value)).lower()
        case float():
            return repr(float(value))
        case (str() as name, int() as amount):
            return _checked(f"{name}={amount}")
        case tuple():
            return _joined([*map(_shown, value)])
        case _:
            return _checked(str(value))


def _checked(name: str) -> str:
    if not name.isprintable() or len(name) > csv.field_size_limit():
        msg = f"a name must be printable and not endless to be written, got {name[:60]!a}"
        raise InvalidSpec(msg)
    return name


def _joined(parts: list[str]) -> str:
    if any(not part or "|" in part for part in parts):
        msg = f"names in a list must not be empty or contain '|' to be written, got {parts}"
        raise InvalidSpec(msg)
    return _checked("|".join(parts))


def _shown_roles(roles: tuple[Role, ...]) -> str:
    shown = [[role.name, role.workers, _changed(role.resources)] for role in roles]
    return json.dumps(shown) if shown else ""


def _changed(resources: Resources) -> dict[str, object]:
    """Pick the fields that do not have their default."""
    pairs = [(field.name, field.default) for field in fields(resources)]
    return {
        name: getattr(resources, name)
        for name, default in pairs
        if getattr(resources, name) != default
    }


def _check_names(kind: str, names: Iterable[str]) -> None:
    """Refuse what could not be read back: no names at all, blank ones, or one name twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen or not name.strip():
            msg = f"each {kind} needs a name of its own to be written, got {name!r}"
            raise InvalidSpec(msg)
        seen.add(name)
    if not seen:
        msg = f"there is no {kind} to write"
        raise InvalidSpec(msg)


def _csv(names: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return buffer.getvalue()


def _job(row: TableRow) -> TraceJob:
    low = row.whole("min_workers", 1, low=1, high=_BIG)
    spec = JobSpec(
        workers=Range(low, row.whole("max_workers", low, low=low, high=_BIG)),
        resources=_resources(row),
        roles=_roles(row),
        queue=QueueId(row.cell("queue") or _PLAIN.spec.queue),
        priority=row.whole("priority", 0, low=-_BIG, high=_BIG),
        user=row.cell("user"),
        application=row.cell("application"),
        run_time_s=row.number("run_time_s", high=inf) if row.cell("run_time_s") else None,
        costs=_costs(*(row.number(field.name, 0.0, high=inf) for field in fields(Costs))),
        min_run_s=row.number("min_run_s", 0.0, high=inf),
        max_retries=row.whole("max_retries", 0, low=-_BIG, high=_BIG),
        preemptible=row.choice("preemptible", _BOOLS, default=True),
        within=row.choice("within", _LEVELS) if row.cell("within") else None,
        cell=row.cell("cell"),
    )
    return TraceJob(
        JobId(_id(row)),
        row.number("submitted_at", high=float_info.max),
        spec,
        row.number("work_s", high=float_info.max),
        row.choice("outcome", _OUTCOMES, Outcome.SUCCEEDED),
        _fails_at(row),
    )


def _node(row: TableRow) -> NodeSpec:
    return NodeSpec(
        NodeId(_id(row)),
        gpus=row.whole("gpus", 8, high=_BIG),
        kind=row.cell("kind") if row.has("kind") else "gpu",
        gpu_memory_mib=row.whole("gpu_memory_mib", 0, high=_BIG),
        cpu_milli=row.whole("cpu_milli", 0, high=_BIG),
        memory_mib=row.whole("memory_mib", 0, high=_BIG),
        sockets=row.whole("sockets", 1, low=1, high=_BIG),
        switch=row.cell("switch"),
        workers=row.whole("workers", 0, high=_BIG),
        extras=_extras(row),
        mixed=row.choice("mixed", _BOOLS, default=True),
        block=row.cell("block"),
        zone=row.cell("zone"),
        site=_site(row),
    )


def _site(row: TableRow) -> CellSite | None:
    told = row.cell("site")
    try:
        return decode(CellSite, json.loads(told)) if told else None
    except (ValueError, RecursionError, InvalidSpec) as error:
        raise row.bad("site", f"a site as JSON ({error})", told) from None


def _id(row: TableRow) -> str:
    row.text("id")  # refuses a blank one
    return row.cell("id")


def _fails_at(row: TableRow) -> tuple[float, ...]:
    found = row.cell("fails_at_s")
    try:
        return tuple(map(float, found.split("|"))) if found else ()
    except ValueError:
        raise row.bad("fails_at_s", "numbers such as 60.0|120.0", found) from None


def _resources(row: TableRow) -> Resources:
    gpus = row.whole("gpus", 1, high=_BIG)
    return _shared_resources(
        gpus,
        row.whole("share_milli", WHOLE, low=1 if gpus == 1 else WHOLE, high=WHOLE),
        row.whole("gpu_memory_mib", 0, high=_BIG),
        row.choice("qos", _QOS, Qos.FIXED),
        tuple(filter(None, row.cell("kinds").split("|"))),
        row.whole("cpu_milli", 0, high=_BIG),
        row.whole("memory_mib", 0, high=_BIG),
        row.choice("way", _WAYS, Way.TEMPORAL),
        extras=_extras(row),
    )


def _extras(row: TableRow) -> Extras:
    """Amounts of what nodes count beside the rest, such as rdma/hca=2|hugepages-2Mi=8."""
    found = row.cell("extras")
    pairs = [pair.rpartition("=") for pair in found.split("|")] if found else []
    try:
        extras = tuple(sorted((name, int(amount)) for name, _, amount in pairs))
        check_extras(extras, "a row")
    except (ValueError, InvalidSpec):
        raise row.bad("extras", "amounts such as rdma/hca=2|hugepages-2Mi=8", found) from None
    return extras


def _roles(row: TableRow) -> tuple[Role, ...]:
    found = row.cell("roles")
    if not found:
        return ()
    try:
        return tuple(_role(*item) for item in json.loads(found))
    except (ValueError, TypeError, RecursionError, InvalidSpec):
        raise _bad_roles(row, found) from None


def _bad_roles(row: TableRow, found: str) -> InvalidTrace:
    return row.bad("roles", 'a list such as [["ps", 2, {"cpu_milli": 4000}]]', found)


def _role(name: str, workers: int, amounts: dict[str, object]) -> Role:
    """Make a role from its JSON; raises ValueError, TypeError or InvalidSpec."""
    qos = Qos(str(amounts.pop("qos", Qos.FIXED)))
    way = Way(str(amounts.pop("way", Way.TEMPORAL)))
    kinds, pool = amounts.pop("kinds", []), str(amounts.pop("pool", ""))
    extras = amounts.pop("extras", [])
    given = {key: value for key, value in amounts.items() if isinstance(value, int)}
    if len(given) < len(amounts) or not isinstance(kinds, list) or not isinstance(workers, int):
        raise TypeError
    if not isinstance(extras, list):
        raise TypeError
    need = Resources(
        **given,
        qos=qos,
        kinds=tuple(map(str, kinds)),
        way=way,
        pool=pool,
        extras=tuple((str(thing), int(amount)) for thing, amount in extras),
    )
    return Role(str(name), workers, need)


_shared_resources = lru_cache(maxsize=4096)(Resources)
_costs = lru_cache(maxsize=4096)(Costs)
