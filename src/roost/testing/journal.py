"""Checks that folding a journal brings back what a restart must bring back.

What policies keep for themselves (memos, wake-ups, reasons, the order of lines) is no part of it:
they may lose it at any time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, NoReturn

from roost.core import Core, Job, Ledger, Node, Plan, Queue, Run, Shape
from roost.testing.engine import JournalBatch

__all__ = ["check_journal", "differ", "snapshot"]


def snapshot(core: Core) -> dict[str, Any]:
    """Everything of a core that a restart must bring back, ready to be compared."""
    return {
        "now": core.now,
        "jobs": {name: _record(job) for name, job in core.jobs.items()},
        "runs": {name: _record(run) for name, run in core.runs.items()},
        "queues": {name: _record(queue) for name, queue in core.queues.items()},
        "nodes": {name: _node_books(node) for name, node in core.ledger.nodes.items()},
        "pools": dict(core.ledger.members),
        "preferred": dict(core.ledger.preferred),
        "contingents": dict(core.ledger.contingents),
        "waiting": sorted(job.seq for job in core.waiting),
        "finished": core.finished,
        "history": list(core.history.service),
        "profiles": {key: repr(kept) for key, kept in core.history.profiles.items()},
        "costs": {key: repr(kept) for key, kept in core.history.costs.items()},
    }


def check_journal(batches: Iterable[JournalBatch], core: Core) -> None:
    """Folding what was recorded gives the same actions and an equal state."""
    again = Core(_not_asked, _not_asked)
    for index, batch in enumerate(batches):
        actions = again.refold(batch.events, batch.decisions)
        if tuple(actions) != batch.actions:
            msg = f"batch {index} folds to {actions}, not {list(batch.actions)}"
            raise AssertionError(msg)
    differences = differ(snapshot(core), snapshot(again))
    if differences:
        raise AssertionError("folding the journal gives another state:\n" + "\n".join(differences))


def differ(one: dict[str, Any], other: dict[str, Any], path: str = "") -> list[str]:
    """Where two snapshots differ, in words."""
    found = []
    for key in sorted(one.keys() | other.keys(), key=str):
        here, there = one.get(key), other.get(key)
        if isinstance(here, dict) and isinstance(there, dict):
            found += differ(here, there, f"{path}/{key}")
        elif here != there:
            found.append(f"{path}/{key}: {here!r} became {there!r}")
    return found


#: Links to other records (compared there), and how long a job waited for which reason: reasons are
#: the policy's, and the journal does not keep them.
_LINKS = {"job", "queue", "run", "line", "waits", "joined", "history"}


def _record(item: Job | Run | Queue) -> dict[str, Any]:
    return {f.name: getattr(item, f.name) for f in fields(item) if f.name not in _LINKS}


def _node_books(node: Node) -> dict[str, Any]:
    return {
        "spec": node.spec,
        "up": node.up,
        "here": node.here,
        "cordon": node.cordon,
        "draining": node.draining,
        "taken": node.taken,
        "healthy": node.healthy,
        "notices": dict(node.notices),
        "idle": node.free,
        "shared": {gpu: (d.left_milli, d.left_mib, d.way) for gpu, d in node.shared.items()},
        "cpu_left": node.cpu_left,
        "memory_left": node.memory_left,
        "workers_left": node.workers_left,
        "extras_used": dict(node.extras_used),
        "runs": {run.id: milli for run, milli in node.runs.items()},
    }


def _not_asked(*about: Plan | Ledger | Shape) -> NoReturn:
    msg = f"a policy or a placer was asked while a journal was folded: {about}"
    raise AssertionError(msg)
