"""What was promised, checked from the objects alone: by counting and by trying everything.

It knows nothing of accounts, policies or placers. At each look it says what is broken:

    a node has more on it than it has GPUs
    a job has some of its pods for longer than it takes to start or to end
    a team has more than it was promised and may borrow, or more than others lend
    a team is below its promise and has a job waiting that would fit, on the nodes that there are or
    on those that the pool could have, once borrowers give back, and still does after a grace
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from roost.kubernetes.client.kinds import JOBS, NODES, PODS, Object
from roost_bench.teams.autoscaler import NodePool, gpus_of
from roost_bench.teams.cluster import MemoryCluster
from roost_bench.teams.script import Script

#: How long a promise may be open: where the nodes are there, and beyond the boot of new ones.
ROOM_S, GROWTH_S = 60.0, 180.0
#: How long a gang may have some of its pods.
_PARTLY_S = 60.0
_OVER = ("succeeded", "failed", "cancelled")
_ENDED = ("Succeeded", "Failed")


class Waiting(NamedTuple):
    """A job that has no pods."""

    name: str
    team: str
    workers: int
    gpus: int

    @property
    def total(self) -> int:
        """All its GPUs."""
        return self.workers * self.gpus


class Holding(NamedTuple):
    """What a job has: of each node how many GPUs."""

    team: str
    nodes: dict[str, int]
    pods: int

    @property
    def total(self) -> int:
        """All its GPUs."""
        return sum(self.nodes.values())


@dataclass(slots=True)
class Look:
    """What the objects say at one moment: what is leaving counts for nodes, not for teams."""

    held: dict[str, int]
    running: dict[str, Holding]
    waiting: list[Waiting]
    free: dict[str, int]
    over_committed: list[str]


def look(cluster: MemoryCluster, script: Script, gpus: int) -> Look:
    """Count what there is."""
    free = {name: gpus for _, name in cluster.objects(NODES)}
    mine: dict[str, list[Object]] = defaultdict(list)
    for pod in cluster.objects(PODS).values():
        node = pod["spec"].get("nodeName")
        if node is None or pod["status"]["phase"] in _ENDED:
            continue
        if node in free:
            free[node] -= gpus_of(pod)
        mine[pod["metadata"].get("labels", {}).get("roost.dev/job", "")].append(pod)
    held = {team.name: 0 for team in script.teams}
    running, waiting = {}, []
    for (_, name), job in cluster.objects(JOBS).items():
        team, pods = job["spec"]["queue"], mine.get(name, [])
        stay = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        if stay:
            on: dict[str, int] = defaultdict(int)
            for pod in stay:
                on[pod["spec"]["nodeName"]] += gpus_of(pod)
            running[name] = Holding(team, dict(on), len(stay))
            held[team] += running[name].total
        elif not pods and not _is_over(cluster, name, job):
            waiting.append(Waiting(name, team, job["spec"]["workers"], job["spec"]["gpus"]))
    wrong = [f"node {name} has {-left} GPUs too few" for name, left in free.items() if left < 0]
    return Look(held, running, waiting, free, wrong)


def _is_over(cluster: MemoryCluster, name: str, job: Object) -> bool:
    state = (job.get("status") or {}).get("state")
    return state in _OVER or cluster.left_s.get(name, 0.0) <= 0


@dataclass(slots=True)
class Oracle:
    """Looks now and then, and remembers since when a promise is open."""

    cluster: MemoryCluster
    script: Script
    pool: NodePool
    #: Since when each job could have begun: on the nodes that there are, and on those to come.
    _room: dict[str, float] = field(default_factory=dict)
    _growth: dict[str, float] = field(default_factory=dict)
    _partly: dict[str, float] = field(default_factory=dict)

    def broken(self) -> list[str]:
        """The promises that are broken now."""
        seen, now = look(self.cluster, self.script, self.pool.gpus), self.cluster.now()
        return [
            *seen.over_committed,
            *self._halves(seen, now),
            *self._limits(seen),
            *self._owed(seen, now),
        ]

    def _halves(self, seen: Look, now: float) -> Iterator[str]:
        partly = {
            name
            for name, has in seen.running.items()
            if has.pods < int(self.cluster.objects(JOBS)["lab", name]["spec"]["workers"])
            and self.cluster.left_s.get(name, 0.0) > 0
        }
        self._partly = {name: self._partly.get(name, now) for name in partly}
        for name, since in self._partly.items():
            if now - since > _PARTLY_S:
                yield f"{name} has some of its pods for {now - since:.0f} s"

    def _limits(self, seen: Look) -> Iterator[str]:
        borrowed = lent = 0
        for team in self.script.teams:
            has = seen.held[team.name]
            above = max(0, has - team.quota)
            borrowed += above
            lent += team.quota - max(team.quota - team.lending, min(has, team.quota))
            if above > team.borrowing:
                yield f"{team.name} borrows {above} GPUs, and may borrow {team.borrowing}"
        if borrowed > lent:
            yield f"{borrowed} GPUs are borrowed where {lent} are lent"

    def _owed(self, seen: Look, now: float) -> Iterator[str]:
        room: dict[str, float] = {}
        growth: dict[str, float] = {}
        new = max(0, self.pool.most - len(seen.free))
        later = {**seen.free, **{f"new-{n}": self.pool.gpus for n in range(new)}}
        quotas = {team.name: team.quota for team in self.script.teams}
        for job in seen.waiting:
            if seen.held[job.team] + job.total > quotas[job.team]:
                continue
            if could_begin(job, seen, seen.free, quotas):
                room[job.name] = self._room.get(job.name, now)
            if could_begin(job, seen, later, quotas):
                growth[job.name] = self._growth.get(job.name, now)
        self._room, self._growth = room, growth
        patience = ((room, ROOM_S), (growth, self.pool.boot_s + GROWTH_S))
        for since, grace in patience:
            for name, at in since.items():
                if now - at > grace:
                    yield f"{name} is within its team's promise and waits for {now - at:.0f} s"


def could_begin(job: Waiting, seen: Look, free: dict[str, int], quotas: dict[str, int]) -> bool:
    """Whether there is a way to begin a job, if teams above their promises give some of that back.

    Every set of jobs is tried that could be asked to go: each of a team that has too much then.
    """
    borrowers = [
        has
        for _, has in sorted(seen.running.items())
        if has.team != job.team and seen.held[has.team] > quotas[has.team]
    ]

    def tried(left: dict[str, int], over: dict[str, int], first: int) -> bool:
        if sum(max(0, room) // job.gpus for room in left.values()) >= job.workers:
            return True
        for number in range(first, len(borrowers)):
            gone = borrowers[number]
            if over[gone.team] <= 0:
                continue
            more = {node: room + gone.nodes.get(node, 0) for node, room in left.items()}
            less = {**over, gone.team: over[gone.team] - gone.total}
            if tried(more, less, number + 1):
                return True
        return False

    over = {team: seen.held[team] - quota for team, quota in quotas.items()}
    return tried(dict(free), over, 0)
