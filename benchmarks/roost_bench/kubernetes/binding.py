"""How fast pods are bound on a real API server: the phases of ``roost bench kubernetes``.

Every phase is the same for both schedulers: a clean cluster, and a fresh process that is ready once
it has bound a first pod. Then the process is stopped (SIGSTOP), all pods are created, and it goes
on: from that moment to the last binding, as a watch tells it, is what is measured. Nothing but the
scheduler and the API server is at work meanwhile: creating a pod costs the server as much as
binding it, and on a small machine a rate that counts from the first pod created says more of the
client that creates them than of the scheduler. That is measured, too (``arriving``): the scheduler
is never stopped, and the time counts from the first pod created. KWOK leaves the pods alone
(``pretend: stays``), except where memory is measured, for running pods are larger.

Roost's own Jobs are measured against the API server: pods like theirs are created once more by a
client that does nothing else, with as many connections as the operator has.

All of it is done several times, schedulers and shapes by turns, and of each the round with the
median rate is told. After every phase no device may be taken twice, and gangs must be whole: one
that lacks a pod is there from the start, and none of it may be bound. kube-scheduler has its
defaults but for a client limit that does not hold it up. Roost's operator has its defaults but for
a lease that outlasts the pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import node, pod
from tests.support.kubernetes.processes import Process

from roost.errors import Fatal, InvalidSpec, NotFound
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS as JOB_OBJECTS
from roost.kubernetes.client.kinds import NODES, PODS, Object, ResourceKind
from roost.kubernetes.client.mirror import Mirror
from roost.kubernetes.crds import definitions
from roost.kubernetes.objects.gang_refs import JOB as JOB_LABEL
from roost.kubernetes.objects.pods import devices_of, is_running
from roost_bench.kubernetes.command import (
    ARRIVING,
    CLIENT,
    CREATED,
    GANGS,
    JOBS,
    MEMORY,
    ROOST,
    SINGLE,
    BindingRow,
    BindingSizes,
)

Say = Callable[[str], None]

GANG = 8
GPUS = 8
_NAMES = {ROOST: "roost"}
_DEFAULT = "default-scheduler"
_GROUP, _SIZE = "roost.dev/group", "roost.dev/group-size"
_DEFINITIONS = ResourceKind(
    *("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"),
    namespaced=False,
)
_OPERATOR = "import sys; from roost.cli import main; sys.exit(main())"
#: Requests at a time of the client that creates pods; requests a second of kube-scheduler's.
_CONNECTIONS = 32
_QPS = 5000
#: So long without a binding is taken for the end; and how often it is told how far it is.
_STALLED_S = 90.0
_TOLD_S = 5.0
_LOOK_S = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")


async def race(
    folder: Path, schedulers: Sequence[str], sizes: BindingSizes, say: Say
) -> list[BindingRow]:
    """Measure all phases, one after the other, on one API server."""
    say("starting etcd, an API server and KWOK")
    async with ControlPlane(folder) as plane:
        api = await Api.connect(kubeconfig=str(plane.kubeconfig), connections=_CONNECTIONS)
        try:
            await created(api, _DEFINITIONS, definitions())
            course = BindingRace(plane, api, say)
            return [row async for row in course.rows(schedulers, sizes)]
        finally:
            await api.close()


class BindingRace:
    """One API server on which schedulers bind pods in turn."""

    def __init__(self, plane: ControlPlane, api: Api, say: Say) -> None:
        self._plane, self._api, self._say = plane, api, say
        self._nodes = 0
        #: The pods of the Jobs.
        self._made: list[Object] = []

    async def rows(
        self, schedulers: Sequence[str], sizes: BindingSizes
    ) -> AsyncIterator[BindingRow]:
        """All phases: schedulers in turn for each shape, memory on the largest cluster."""
        for count in sizes.nodes:
            await self._prepare(count)
            found: dict[tuple[str, str], list[BindingRow]] = {}
            for _ in range(sizes.rounds):
                for shape, pods in (
                    (SINGLE, sizes.pods),
                    (GANGS, sizes.gangs * GANG),
                    (ARRIVING, sizes.pods),
                ):
                    for scheduler in schedulers:
                        row = await self._row(scheduler, shape, pods)
                        found.setdefault((shape, scheduler), []).append(row)
            for same in found.values():
                yield sorted(same, key=lambda row: row.pods_per_s)[len(same) // 2]
            if ROOST in schedulers and count == max(sizes.nodes):
                for row in await self._jobs(sizes.jobs):
                    yield row
                yield await self._row(ROOST, MEMORY, sizes.kept)

    async def _jobs(self, count: int) -> list[BindingRow]:
        """Bind the pods of Jobs; then create their like once more, and nothing else."""
        with paused(self._plane.kwok):  # it would run them meanwhile: a Job cannot say otherwise
            row = await self._row(ROOST, JOBS, count)
            began = time.monotonic()
            await created(self._api, PODS, map(_again, self._made))
            took = time.monotonic() - began
        await self._plane.wipe(keep_nodes=True)
        rate = round(count / took, 1)
        return [row, BindingRow(CLIENT, self._nodes, CREATED, count, rate, round(took, 3), 0.0)]

    async def _prepare(self, count: int) -> None:
        self._say(f"creating {count:,} nodes")
        await self._plane.wipe()
        await created(self._api, NODES, (node(f"node-{n:05}", gpus=GPUS) for n in range(count)))
        self._nodes = count

    async def _row(self, scheduler: str, shape: str, pods: int) -> BindingRow:
        what = f"{self._nodes:,} nodes, {shape}, {scheduler}"
        if pods >= self._nodes * GPUS:
            raise InvalidSpec(f"{what}: {pods:,} pods and a first one do not fit there")
        process = Process(scheduler, self._plane.folder)
        process.start(self._command(scheduler))
        try:
            async with following(self._api) as bound:
                await self._warm(scheduler, shape, bound, process)
                row = await self._phase(scheduler, shape, pods, bound, process)
        finally:
            process.kill()
            await self._plane.wipe(keep_nodes=True)
        return row

    async def _warm(self, scheduler: str, shape: str, bound: Bound, process: Process) -> None:
        """Have a first pod bound, and in Roost's case a gang wait that must not be."""
        if scheduler == ROOST and shape == GANGS:
            await created(self._api, PODS, gang("torn", GANG, scheduler)[1:])
        await created(self._api, PODS, [_pod("first", scheduler)])
        await bound.until(1, process, lambda _: None)

    async def _phase(
        self, scheduler: str, shape: str, count: int, bound: Bound, process: Process
    ) -> BindingRow:
        what = f"{self._nodes:,} nodes, {shape}, {scheduler}"
        if shape != ARRIVING:
            with paused(process):
                if shape == JOBS:
                    await created(self._api, JOB_OBJECTS, jobs(count))
                else:
                    await created(self._api, PODS, made(shape, count, scheduler))
        servers = self._plane.servers
        used, began = [cpu_s(process), sum(map(cpu_s, servers))], time.monotonic()
        if shape == ARRIVING:
            await created(self._api, PODS, made(shape, count, scheduler))
        await bound.until(1 + count, process, lambda text: self._say(f"{what}: {text}"))
        took = bound.last_at - began
        used = [cpu_s(process) - used[0], sum(map(cpu_s, servers)) - used[1]]
        if shape == MEMORY:
            await bound.until_running(count, process)
        if shape == JOBS:
            self._made, _ = await self._api.list(PODS, "default", labels=JOB_LABEL)
        wrong = faults(bound.pods, roost=scheduler == ROOST)
        if wrong:
            raise Fatal(f"{what}: {'; '.join(wrong[:3])}")
        row = BindingRow(
            scheduler,
            self._nodes,
            shape,
            count,
            pods_per_s=round(count / took, 1),
            seconds_to_last=round(took, 3),
            peak_rss_mib=round(peak_rss_mib(process), 1),
            cpu_s=round(used[0], 2),
            server_cpu_s=round(used[1], 2),
        )
        self._say(
            f"{what}: {row.pods:,} pods in {took:.2f} s, {row.pods_per_s:.0f} a second; "
            f"{row.cpu_s:.1f} s of CPU, {row.server_cpu_s:.1f} of the server's, "
            f"{row.peak_rss_mib:.0f} MiB"
        )
        return row

    def _command(self, scheduler: str) -> list[str | Path]:
        if scheduler == ROOST:
            given = f"--kubeconfig={self._plane.kubeconfig}"
            others = ("--metrics-port=0", "--meeting-port=0", "--lease=10m")
            return [sys.executable, "-c", _OPERATOR, "operator", given, *others]
        program = self._plane.binaries.scheduler
        if program is None:
            raise NotFound("kube-scheduler is not in KUBEBUILDER_ASSETS: unset it to have it built")
        path = self._plane.folder / "kube-scheduler.yaml"
        path.write_text(
            "apiVersion: kubescheduler.config.k8s.io/v1\n"
            "kind: KubeSchedulerConfiguration\n"
            "leaderElection: {leaderElect: false}\n"
            f"clientConnection: {{kubeconfig: {self._plane.kubeconfig}, "
            f"qps: {_QPS}, burst: {_QPS}}}\n",
            encoding="utf-8",
        )
        return [program, f"--config={path}", "--secure-port=0"]


class Bound:
    """Pods that have a node, and when the last one got it."""

    def __init__(self, api: Api) -> None:
        self.last_at = time.monotonic()
        self.mirror = Mirror(api, PODS, self._seen, fields="spec.nodeName!=", stall_s=600.0)

    @property
    def pods(self) -> list[Object]:
        """All of them."""
        return list(self.mirror.objects.values())

    def _seen(self, old: Object | None, _new: Object | None) -> None:
        if old is None:
            self.last_at = time.monotonic()

    async def until(self, count: int, process: Process, say: Say) -> None:
        """Wait for so many; raises Fatal if the scheduler ends, or binds none for a long time."""
        await self._reach(lambda: len(self.mirror.objects), count, process, say)

    async def until_running(self, count: int, process: Process) -> None:
        """Wait until so many run, and the scheduler has heard of it."""

        def running() -> int:
            return sum(map(is_running, self.mirror.objects.values()))

        await self._reach(running, count, process, lambda _: None)
        await asyncio.sleep(1.0)

    async def _reach(self, look: Callable[[], int], count: int, process: Process, say: Say) -> None:
        most, told_at = 0, time.monotonic()
        stalled_at = told_at + _STALLED_S
        while (there := look()) < count:
            now = time.monotonic()
            if there > most:
                most, stalled_at = there, now + _STALLED_S
            if now > stalled_at or not process.runs:
                why = f"goes no further for {_STALLED_S:.0f} s" if process.runs else "ended"
                text = f"{process.name} {why}, at {there:,} of {count:,} pods"
                raise Fatal(f"{text}: {process.tail() or 'it says nothing'}")
            if now - told_at > _TOLD_S:
                told_at = now
                say(f"{there:,} of {count:,} pods")
            await asyncio.sleep(_LOOK_S)


@contextlib.asynccontextmanager
async def following(api: Api) -> AsyncIterator[Bound]:
    """Pods that are bound, kept up to date meanwhile."""
    bound = Bound(api)
    task = asyncio.create_task(bound.mirror.run())
    try:
        await bound.mirror.synced.wait()
        yield bound
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def created(api: Api, kind: ResourceKind, objects: Iterable[Object]) -> None:
    """Create objects in their order, as fast as the connections allow."""
    left = iter(objects)

    async def create() -> None:
        for one in left:
            await api.create(kind, one)

    async with asyncio.TaskGroup() as group:
        for _ in range(_CONNECTIONS):
            group.create_task(create())


def made(shape: str, count: int, scheduler: str) -> list[Object]:
    """The pods of a phase."""
    if shape == GANGS:
        names = [f"gang-{n:05}" for n in range(count // GANG)]
        return [one for name in names for one in gang(name, GANG, scheduler)]
    pretend = "" if shape == MEMORY else "stays"
    return [_pod(f"pod-{n:05}", scheduler, pretend=pretend) for n in range(count)]


def jobs(count: int) -> list[Object]:
    """Roost's own Jobs, of one worker with one GPU."""
    spec = {"image": "example.org/train:1", "command": ["train"], "gpus": 1}
    return [
        {
            "apiVersion": JOB_OBJECTS.api_version,
            "kind": JOB_OBJECTS.kind,
            "metadata": {"name": f"job-{n:05}", "namespace": "default"},
            "spec": spec,
        }
        for n in range(count)
    ]


def _again(pod: Object) -> Object:
    """The same pod under another name, for nobody to bind."""
    meta, spec = pod["metadata"], {**pod["spec"], "schedulerName": "nobody"}
    del spec["nodeName"]
    kept = {key: meta[key] for key in ("namespace", "labels", "annotations") if key in meta}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**kept, "name": f"{meta['name']}-again"},
        "spec": spec,
    }


def gang(name: str, size: int, scheduler: str) -> list[Object]:
    """Pods that belong together; a scheduler that knows no gangs takes no notice of it."""
    notes = {_GROUP: name, _SIZE: str(size)}
    return [_pod(f"{name}-{n}", scheduler, annotations=notes) for n in range(size)]


def _pod(
    name: str, scheduler: str, annotations: dict[str, str] | None = None, pretend: str = "stays"
) -> Object:
    asked = _NAMES.get(scheduler, _DEFAULT)
    return pod(name, scheduler=asked, annotations=annotations, pretend=pretend)


def faults(pods: Iterable[Object], *, roost: bool) -> list[str]:
    """What must not be: too many pods on a node, a device taken twice, a part of a gang."""
    on: Counter[str] = Counter()
    taken: Counter[tuple[str, int]] = Counter()
    gangs: Counter[str] = Counter()
    for one in pods:
        name = one["spec"]["nodeName"]
        on[name] += 1
        taken.update((name, device) for device in devices_of(one))
        group = (one["metadata"].get("annotations") or {}).get(_GROUP)
        if group and roost:
            gangs[group] += 1
    wrong = [f"{many} pods are on {name}" for name, many in on.items() if many > GPUS]
    wrong += [f"GPU {gpu} of {name} is taken twice" for (name, gpu), n in taken.items() if n > 1]
    wrong += [f"{n} of {GANG} pods of {name} are bound" for name, n in gangs.items() if n != GANG]
    return wrong


@contextlib.contextmanager
def paused(process: Process) -> Iterator[None]:
    """A process that does nothing meanwhile."""
    pid = process.pid
    if pid is None:
        raise Fatal(f"{process.name} ended: {process.tail() or 'it says nothing'}")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def peak_rss_mib(process: Process) -> float:
    """The most memory that a process has held."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def cpu_s(process: Process) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
    user, system = fields.split()[11:13]
    return (int(user) + int(system)) / _TICKS
