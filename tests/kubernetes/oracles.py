"""What must hold whatever goes wrong, seen by somebody whose own connection is sound.

A ``Witness`` follows every change of nodes, pods and Jobs, one by one, and notes each moment at
which one of these was not so:

- no node gives away more than it has, and no device more than itself;
- a pod stays where it was bound;
- a rank of an attempt of a Job has one pod, ever;
- a Job that is over stays what it became.

``unsettled`` tells what may be so for a while and must not be in the end: gangs that are bound in
part, pods of Jobs that are over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import NamedTuple, Self

from tests.kubernetes.operating import GROUP, SIZE

from roost.core import JobState
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS, NODES, PODS, Object
from roost.kubernetes.client.mirror import Mirror
from roost.kubernetes.objects.needs import needs
from roost.kubernetes.objects.pods import devices_of, is_bound, is_leaving, is_over
from roost.kubernetes.objects.quantities import milli

_OVER = frozenset(str(state) for state in JobState if state.over)
_JOB = "roost.dev/job"


class Rank(NamedTuple):
    """A place in a start of a Job."""

    job: str
    attempt: str
    generation: str
    role: str
    number: str


class Witness:
    """Sees everything that the API server tells, and remembers what must not have been."""

    def __init__(self, api: Api) -> None:
        self.wrong: list[str] = []
        #: Pods that were bound while somebody looked, and that were made: by uid, their names.
        self.bound: dict[str, str] = {}
        self.made: dict[str, str] = {}
        self._before: set[str] = set()
        self._nodes = Mirror(api, NODES, lambda *_: None)
        self._pods = Mirror(api, PODS, self._pod)
        self._jobs = Mirror(api, JOBS, self._job)
        self._on: defaultdict[str, dict[str, Object]] = defaultdict(dict)
        self._where: dict[str, str] = {}
        self._ranks: dict[Rank, str] = {}
        self._ended: dict[str, str] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, api: Api) -> AsyncIterator[Self]:
        """A witness from now on; it testifies at the end."""
        found = cls(api)
        mirrors = (found._nodes, found._pods, found._jobs)
        tasks: list[asyncio.Task[None]] = []
        try:
            for mirror in mirrors:  # nodes first: pods are judged by them
                tasks.append(asyncio.create_task(mirror.run()))
                await asyncio.wait_for(mirror.synced.wait(), 60)
            found._before = set(found.made)
            found.made.clear()
            found.bound.clear()
            yield found
            found.testify()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def testify(self) -> None:
        """Fail if something was wrong at any moment."""
        assert not self.wrong, "\n".join(self.wrong[:20])

    @property
    def pods(self) -> list[Object]:
        """All pods now."""
        return list(self._pods.objects.values())

    @property
    def jobs(self) -> dict[str, Object]:
        """All Jobs now, by their names."""
        return {name: found for (_, name), found in self._jobs.objects.items()}

    def job_pods(self, name: str) -> list[Object]:
        """The pods of a Job now."""
        return [pod for pod in self.pods if _label(pod, _JOB) == name]

    def _pod(self, old: Object | None, new: Object | None) -> None:
        pod = new or old
        if pod is None:
            return
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        if new is None:
            for there in self._on.values():
                there.pop(uid, None)
            return
        if uid not in self.made and uid not in self._before:
            self.made[uid] = name
            self._one_per_rank(new)
        if not is_bound(new):
            return
        node = new["spec"]["nodeName"]
        first = uid not in self._where
        if self._where.setdefault(uid, node) != node:
            self.wrong.append(f"{name} was bound to {self._where[uid]}, then to {node}")
        if first:
            self.bound[uid] = name
        if is_over(new):
            self._on[node].pop(uid, None)
            return
        self._on[node][uid] = new
        if first:
            self.wrong += self._excess(node, new)

    def _excess(self, node: str, newest: Object) -> list[str]:
        known = self._nodes.objects.get(("", node))
        if known is None:
            return []
        found = excess(known["status"]["allocatable"], self._on[node].values())
        others = sorted(pod["metadata"]["name"] for pod in self._on[node].values())
        last = newest["metadata"]["name"]
        return [f"{node}: {one}, with {last} among {others}" for one in found]

    def _one_per_rank(self, pod: Object) -> None:
        rank = rank_of(pod)
        if rank is None:
            return
        uid = pod["metadata"]["uid"]
        if self._ranks.setdefault(rank, uid) != uid:
            self.wrong.append(f"{pod['metadata']['name']} was made twice for {rank}")

    def _job(self, old: Object | None, new: Object | None) -> None:
        del old
        if new is None:
            return
        meta, state = new["metadata"], (new.get("status") or {}).get("state", "")
        before = self._ended.get(meta["uid"])
        if before is not None and state != before:
            self.wrong.append(f"{meta['name']} was {before}, then {state}")
        if state in _OVER:
            self._ended[meta["uid"]] = state

    def unsettled(self) -> list[str]:
        """What must not stay so; nothing, if all is well."""
        return [*partial_gangs(self.pods), *self._leftovers()]

    def _leftovers(self) -> list[str]:
        owners = {found["metadata"]["uid"]: found for found in self._jobs.objects.values()}
        wrong = []
        for pod in self.pods:
            references = pod["metadata"].get("ownerReferences") or ()
            mine = [one for one in references if one["kind"] == JOBS.kind]
            if not mine or is_over(pod):
                continue
            owner = owners.get(mine[0]["uid"])
            state = None if owner is None else (owner.get("status") or {}).get("state")
            if owner is None or state in _OVER:
                wrong.append(f"{pod['metadata']['name']} of a Job that is {state or 'gone'}")
        return wrong


def excess(allocatable: Mapping[str, str], pods: Iterable[Object]) -> list[str]:
    """What the living pods of a node take beyond what it has."""
    asked = [(pod, needs(pod).resources) for pod in pods]
    wrong = []
    gpus = sum(need.gpu_milli for _, need in asked)
    if gpus > milli(allocatable.get("nvidia.com/gpu", "0"), "gpus"):
        wrong.append(f"{gpus} milli-GPUs are taken")
    if sum(need.cpu_milli for _, need in asked) > milli(allocatable["cpu"], "cpu"):
        wrong.append("too many CPUs are taken")
    taken: Counter[int] = Counter()
    for pod, need in asked:
        for device in devices_of(pod):
            taken[device] += need.share_milli
    return wrong + [f"device {gpu} has {share}" for gpu, share in taken.items() if share > 1000]


def partial_gangs(pods: Iterable[Object]) -> list[str]:
    """Gangs of which some pods are bound and some are not."""
    held: Counter[str] = Counter()
    size: dict[str, int] = {}
    for pod in pods:
        notes = pod["metadata"].get("annotations") or {}
        if GROUP not in notes or is_over(pod):
            continue
        name = f"{pod['metadata']['namespace']}/{notes[GROUP]}"
        size[name] = int(notes[SIZE])
        held[name] += is_bound(pod) and not is_leaving(pod)
    return [
        f"{held[name]} of {count} pods of {name} are bound"
        for name, count in size.items()
        if held[name] not in (0, count)
    ]


def rank_of(pod: Object) -> Rank | None:
    """The place in a Job that a pod was made for."""
    owner: Object = next(iter(pod["metadata"].get("ownerReferences") or ()), {})
    if owner.get("kind") != JOBS.kind:
        return None
    names = ("attempt", "generation", "role", "index")
    return Rank(owner["uid"], *(_label(pod, f"roost.dev/{name}") for name in names))


def _label(pod: Object, name: str) -> str:
    return str((pod["metadata"].get("labels") or {}).get(name, ""))
