"""Pods become tenants of the sharing daemon, as runs of the local engine do.

A container with a share of a GPU, or with a limit on its memory, is one tenant: its first process
and all below. Its pod may ask for it to be suspended in place (``roost.dev/suspend: "true"``): its
memory goes to the host, its processes live on, and nothing of it uses the GPU until the annotation
is taken away. What became of that is written in ``roost.dev/suspended``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from roost.core.allocation import WORKER
from roost.core.spec import WHOLE, JobId, RunId
from roost.engines.local.gpu import GpuSharing, ParkResult
from roost.engines.local.shim import process_tree
from roost.errors import Retryable, RoostError
from roost.kubernetes.agent.allocation import ContainerWish
from roost.kubernetes.agent.containers import first_processes, running
from roost.kubernetes.agent.use import PodUse, UseMeter
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.pods import uid_of
from roost.kubernetes.objects.values import annotations_of

_log = logging.getLogger(__name__)

SUSPEND, SUSPENDED = "roost.dev/suspend", "roost.dev/suspended"
USE = "roost.dev/gpu-use"
#: The use of a pod is written on it so often at most.
TELL_S = 60.0
#: Writes annotations on a pod; None takes one away.
Annotate = Callable[[Object, dict[str, str | None]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class TenantState:
    """How a pod with a share stands, for figures."""

    namespace: str
    pod: str
    gpus: tuple[int, ...]
    share_milli: int
    suspended: bool
    problem: str
    use: PodUse | None


@dataclass(slots=True)
class _PodTenant:
    """A pod that is a tenant; ``process`` is its container's first one."""

    wish: ContainerWish
    gpus: tuple[int, ...]
    process: tuple[int, int]
    suspended: bool = False
    #: What was asked for the last time, so that a refusal is not repeated.
    asked: bool = False
    #: Suspends or resumes it: that takes as long as its memory is large.
    underway: asyncio.Task[None] | None = None
    use: PodUse | None = None
    #: What was last written of its use, and when.
    told: tuple[float, str] = (float("-inf"), "")


class PodTenants:
    """Keeps the tenants of the sharing daemon as the pods of this node are."""

    def __init__(self, sharing: GpuSharing, annotate: Annotate) -> None:
        self._sharing, self._annotate = sharing, annotate
        self._tenants: dict[str, _PodTenant] = {}
        #: Pods that run and have no processes here.
        self.unseen: dict[str, str] = {}

    async def look(
        self, pods: Sequence[Object], given: Sequence[tuple[ContainerWish, tuple[int, ...]]]
    ) -> None:
        """Take in who runs, let go of who ended, suspend and resume whom it is asked for."""
        known = {uid_of(pod): pod for pod in pods}
        held = {wish.uid: (wish, gpus) for wish, gpus in given if _is_held(wish)}
        for uid in [uid for uid in self._tenants if uid not in held]:
            await self._sharing.detach(_run(uid))
            underway = self._tenants.pop(uid).underway
            if underway is not None:
                underway.cancel()
        ids = {uid: running(known[uid]).get(wish.container, "") for uid, (wish, _) in held.items()}
        processes = first_processes({one for one in ids.values() if one})
        self.unseen = {}
        for uid, (wish, gpus) in held.items():
            process = processes.get(ids[uid])
            if process is None and ids[uid]:
                self.unseen[uid] = str(wish)
            if process is not None:
                await self._take_in(uid, wish, gpus, process)
                self._heed(known[uid], self._tenants[uid])

    async def tell_use(self, pods: Sequence[Object], meter: UseMeter, now: float) -> None:
        """See what pods make of their shares, and write it on them now and then."""
        awake = {uid: one for uid, one in self._tenants.items() if not one.suspended}
        asked = {uid: (one.process[0], one.gpus) for uid, one in awake.items()}
        found = await asyncio.to_thread(meter.look, asked, now)
        known = {uid_of(pod): pod for pod in pods}
        for uid, use in found.items():
            tenant = self._tenants[uid]
            tenant.use = use
            text = json.dumps({"busy": round(use.busy, 1), "memory_mib": use.memory_mib})
            at, before = tenant.told
            if text != before and now - at >= TELL_S and uid in known:
                await self._annotate(known[uid], {USE: text})
                tenant.told = now, text

    def standings(self) -> list[TenantState]:
        """How each tenant stands."""
        return [
            TenantState(
                one.wish.namespace,
                one.wish.pod,
                one.gpus,
                one.wish.need.share_milli,
                one.suspended,
                self._sharing.problem(_run(uid)),
                one.use,
            )
            for uid, one in self._tenants.items()
        ]

    async def _take_in(
        self, uid: str, wish: ContainerWish, gpus: tuple[int, ...], process: tuple[int, int]
    ) -> None:
        known = self._tenants.get(uid)
        if known is not None and (known.process, known.gpus) == (process, gpus):
            if known.wish.need == wish.need:
                return
            # Annotations changed: how it is held is changed, whatever is under way.
            known.wish = wish
            await self._attach(wish, gpus, process)
            return
        await self._attach(wish, gpus, process)
        suspended = self._sharing.is_parked(_run(uid))
        self._tenants[uid] = _PodTenant(wish, gpus, process, suspended, suspended)
        _log.info("%s: its share is held from process %d on", wish, process[0])

    async def _attach(
        self, wish: ContainerWish, gpus: tuple[int, ...], process: tuple[int, int]
    ) -> None:
        seat = replace(wish.seat, gpus=gpus)
        try:
            await self._sharing.attach(
                _run(wish.uid), [seat], {WORKER: wish.need}, {seat.name: process}
            )
        except Retryable as error:
            _log.warning("%s: its share is not held: %s", wish, error)

    def _heed(self, pod: Object, tenant: _PodTenant) -> None:
        """Suspend or resume, once for each time it is asked for."""
        asked = annotations_of(pod).get(SUSPEND) == "true"
        if asked == tenant.asked or (tenant.underway is not None and not tenant.underway.done()):
            return
        tenant.asked = asked
        if asked != tenant.suspended:
            tenant.underway = asyncio.create_task(self._change(pod, tenant, suspend=asked))

    async def _change(self, pod: Object, tenant: _PodTenant, *, suspend: bool) -> None:
        result = await (self._park(tenant) if suspend else self._unpark(tenant))
        tenant.suspended = suspend if result.how != "none" else not suspend
        told = {
            "suspended": tenant.suspended,
            "how": result.how,
            "took_s": round(result.took_s, 3),
            "freed_mib": result.freed_mib,
            **({"why": result.why} if result.why else {}),
        }
        _log.info("%s: %s: %s", tenant.wish, "suspended" if suspend else "resumed", told)
        try:
            await self._annotate(pod, {SUSPENDED: json.dumps(told)})
        except RoostError as error:
            _log.warning("%s: it cannot be told that: %s", tenant.wish, error)

    async def _park(self, tenant: _PodTenant) -> ParkResult:
        run = _run(tenant.wish.uid)
        result = await self._sharing.park(run)
        if result.how == "checkpoint":
            # What is off the GPU would go on with its CPU work, and wait for the GPU only then.
            _send(tenant, signal.SIGSTOP)
        return result

    async def _unpark(self, tenant: _PodTenant) -> ParkResult:
        # First this: the driver does not restore a process that a signal has stopped.
        _send(tenant, signal.SIGCONT)
        seat = replace(tenant.wish.seat, gpus=tenant.gpus)
        return await self._sharing.unpark(_run(tenant.wish.uid), [seat])


def _send(tenant: _PodTenant, number: int) -> None:
    pid, ticks = tenant.process
    first = process_tree.look(pid)
    if first is None or first.ticks != ticks:
        return
    for process in [first, *process_tree.descendants(pid)]:
        process_tree.send(process, number)


def _is_held(wish: ContainerWish) -> bool:
    """Whether there is anything to hold for a container."""
    return wish.need.share_milli < WHOLE or bool(wish.need.gpu_memory_mib)


def _run(uid: str) -> RunId:
    """A pod as the local engine calls what has a share."""
    return RunId(JobId(uid), 1)
