"""One hour of the operator: its leadership and its Jobs, as in a cluster, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from roost import placement, policies
from roost.kubernetes.client.kinds import CLUSTER_QUEUES, JOBS, QUEUES
from roost.kubernetes.filters import NODE_FILTERS
from roost.kubernetes.jobs.controller import JobController, JobOptions
from roost.kubernetes.operator.announcement import DEFAULT_PLACER, DEFAULT_POLICY
from roost.kubernetes.operator.binding import Binder
from roost.kubernetes.operator.leadership import Leadership
from roost.kubernetes.operator.loop import pod_sources
from roost.kubernetes.operator.nodes import LOST_S
from roost.kubernetes.operator.workload import SourceFactory
from roost_bench.teams import virtual_time
from roost_bench.teams.autoscaler import NodePool
from roost_bench.teams.cluster import SPACE, MemoryCluster
from roost_bench.teams.oracle import Oracle, look
from roost_bench.teams.script import HOUR_S, Arrival, Script

#: How often the pool looks at pods, jobs work, promises are checked and a row is told, in seconds.
_POOL_S, _WORK_S, _CHECK_S, _ROW_S = 10.0, 5.0, 60.0, 300.0
_TREE = "lab"


@dataclass(frozen=True, slots=True)
class TeamRow:
    """What one team has at a moment, in GPUs."""

    team: str
    held: int
    borrowed: int
    lent: int


@dataclass(frozen=True, slots=True)
class Row:
    """How it stands at a moment."""

    minute: int
    nodes: int
    teams: tuple[TeamRow, ...]
    waiting: int
    broken: int


@dataclass(slots=True)
class Hour:
    """What became of an hour."""

    rows: list[Row] = field(default_factory=list)
    #: Each promise that was broken, with its minute.
    broken: list[str] = field(default_factory=list)
    checks: int = 0
    jobs: int = 0
    ended: int = 0
    nodes_made: int = 0
    most_borrowed: int = 0
    #: Jobs that had to stop for another team, or with their machine, and began again.
    restarts: int = 0


def played(script: Script) -> Hour:
    """Play a script; the same one always ends the same."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # a lost machine is no news here
    try:
        return virtual_time.run(_play(script))
    finally:
        logging.disable(before)


async def _play(script: Script) -> Hour:
    cluster = MemoryCluster()
    pool = NodePool(cluster, script.most_nodes)
    oracle, hour = Oracle(cluster, script, pool), Hour(jobs=len(script.arrivals))
    await _promise(cluster, script)
    async with _led(cluster), asyncio.TaskGroup() as going:
        tasks = [
            going.create_task(_every(_POOL_S, pool.look)),
            going.create_task(_every(_WORK_S, lambda: cluster.work(_WORK_S))),
            going.create_task(_fail(pool, script.fails_at)),
            *(going.create_task(_arrive(cluster, one)) for one in script.arrivals),
        ]
        await _watch(cluster, script, oracle, hour)
        for task in tasks:
            task.cancel()
    told = [(job.get("status") or {}) for job in cluster.objects(JOBS).values()]
    hour.ended = sum(status.get("state") == "succeeded" for status in told)
    hour.restarts = sum(max(0, int(status.get("attempt") or 0) - 1) for status in told)
    hour.nodes_made = pool.made
    return hour


async def _watch(cluster: MemoryCluster, script: Script, oracle: Oracle, hour: Hour) -> None:
    """Check every promise each minute, and tell a row every five."""
    for minute in range(1, int(HOUR_S / _CHECK_S) + 1):
        await asyncio.sleep(_CHECK_S)
        hour.checks += 1
        hour.broken += [f"minute {minute}: {sentence}" for sentence in oracle.broken()]
        seen = look(cluster, script, oracle.pool.gpus)
        above = {team.name: max(0, seen.held[team.name] - team.quota) for team in script.teams}
        hour.most_borrowed = max(hour.most_borrowed, *above.values())
        if minute * _CHECK_S % _ROW_S:
            continue
        teams = tuple(
            TeamRow(
                team.name,
                seen.held[team.name],
                above[team.name],
                sum(more for name, more in above.items() if name != team.name),
            )
            for team in script.teams
        )
        hour.rows.append(Row(minute, oracle.pool.size, teams, len(seen.waiting), len(hour.broken)))


async def _every(seconds: float, act: Any) -> None:
    while True:
        await asyncio.sleep(seconds)
        act()


async def _fail(pool: NodePool, at: float) -> None:
    await asyncio.sleep(at)
    pool.fail()


async def _arrive(cluster: MemoryCluster, one: Arrival) -> None:
    await asyncio.sleep(one.at)
    cluster.left_s[one.name] = one.seconds
    spec = {
        "image": "train",
        "command": ["train"],
        "queue": one.team,
        "workers": one.workers,
        "gpus": one.gpus,
        "retry": {"max": 9},
    }
    body = {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": one.name},
        "spec": spec,
    }
    await cluster.create(JOBS, body, SPACE)


async def _promise(cluster: MemoryCluster, script: Script) -> None:
    """The tree of queues, and the ways into it."""
    await cluster.create(CLUSTER_QUEUES, {"metadata": {"name": _TREE}, "spec": {}})
    for team in script.teams:
        spec = {
            "parent": _TREE,
            "quota": team.quota,
            "limit": team.quota + team.borrowing,
            "lending": team.lending,
        }
        await cluster.create(CLUSTER_QUEUES, {"metadata": {"name": team.name}, "spec": spec})
        way = {"metadata": {"name": team.name}, "spec": {"clusterQueue": team.name}}
        await cluster.create(QUEUES, way, SPACE)


@contextlib.asynccontextmanager
async def _led(cluster: MemoryCluster) -> AsyncIterator[Leadership]:
    """The operator as it leads a cluster, asking for nodes."""
    options = JobOptions(placer=DEFAULT_PLACER, asks_for_nodes=True)
    jobs = SourceFactory(JobController.kinds, lambda context: JobController(context, options))
    leadership = Leadership(
        policies.policy(DEFAULT_POLICY),
        placement.placer(DEFAULT_PLACER),
        cluster.objects,
        cluster.now,
        [jobs, *pod_sources()],
        api=cluster,  # type: ignore[arg-type]
        binder=Binder(cluster, lambda: None),  # type: ignore[arg-type]
        lost_s=LOST_S,
        filters=NODE_FILTERS,
    )
    cluster.leadership = leadership
    task = asyncio.create_task(leadership.run())
    try:
        yield leadership
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        cluster.leadership = None
