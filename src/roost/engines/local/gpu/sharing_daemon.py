"""The sharing daemon: the one process that locks others, and that unlocks all when it ends.

It makes true what the engine wrote down (``state_files``) and writes down what is so. It needs no
server, and outlives it. A daemon that is killed is replaced by another, which finds everything in
the files: tenants that are to run are unlocked first of all.

It ends when it is told to (SIGTERM) or when no tenant is left. What was parked stays parked, in the
memory of the host, until a daemon is told to bring it back.

    main thread      looks at the files, every quarter of a second and on SIGHUP
    SliceThread      one for each shared device: locks and unlocks its tenants by turns
    pool ``park``    parking and bringing back, which take seconds
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from roost.engines.local.gpu import memory_limit, memory_room, restorable
from roost.engines.local.gpu.activity_meters import CpuMeter, GpuMeter
from roost.engines.local.gpu.driver import (
    CheckpointDriver,
    CudaDriver,
    DriverRefused,
    Move,
    NoDriver,
)
from roost.engines.local.gpu.huge_pages import HugePages
from roost.engines.local.gpu.signals import SignalDriver
from roost.engines.local.gpu.slice_thread import SliceThread
from roost.engines.local.gpu.state_files import StateFiles
from roost.engines.local.gpu.telemetry import Nvml
from roost.engines.local.gpu.tenant import (
    SAMPLE_S,
    ParkOutcome,
    Tenant,
    TenantRequest,
    finder,
    let_go,
)
from roost.engines.local.gpu.time_slices import ActivityMeter, TenantProcesses
from roost.engines.local.gpu.worker_processes import WorkerProcesses
from roost.engines.local.shim import process_tree

#: How long it tries to get the lock, stays without tenants, and waits for a parking under way.
_LOCK_S = 3.0
_LINGER_S = 5.0
_ANSWER_S = 30.0
#: How long a tenant that is to come back waits for room on its GPU, and how often it looks.
_ROOM_S = 120.0
_LOOK_S = 0.25


_DRIVERS: dict[str, Callable[[], CheckpointDriver]] = {
    "cuda": CudaDriver,
    "signals": SignalDriver,
    "mps": NoDriver,
}


class DaemonDevices:
    """Drivers, meters and NVML, by means: made when first needed, replaced in tests."""

    def __init__(self) -> None:
        self._drivers: dict[str, CheckpointDriver] = {}
        self._nvml: Nvml | None = None

    def driver(self, means: str) -> CheckpointDriver:
        """What locks processes; raises DriverRefused."""
        if means not in self._drivers:
            self._drivers[means] = _DRIVERS[means]()
        return self._drivers[means]

    def meter(self, means: str, device: int) -> ActivityMeter:
        """What tells idle tenants of a device."""
        if means == "cuda":
            with suppress(DriverRefused):  # by CPU time where NVML is missing
                return GpuMeter(self.nvml(), device)
            return CpuMeter()
        driver = self.driver(means)
        return CpuMeter(driver.family) if isinstance(driver, SignalDriver) else CpuMeter()

    def held(self, device: int) -> dict[int, int]:
        """The processes of a GPU and the MiB that each holds."""
        return self.nvml().processes(device)

    def free_mib(self, device: int) -> int:
        """How much memory of a GPU nobody holds."""
        memory = self.nvml().memory(device)
        return memory.total - memory.used

    def host_mib(self, pid: int) -> int:
        """How much memory of the host a process may still take."""
        return memory_room.host_mib(pid)

    def driver_version(self) -> int:
        """The branch of NVIDIA's driver."""
        return restorable.driver_version()

    def pages(self, note: Path) -> HugePages:
        """The machine's setting of huge pages."""
        return HugePages(note)

    def uuid(self, device: int) -> str:
        """The name of a GPU for good."""
        return self.nvml().uuid(device)

    def nvml(self) -> Nvml:
        """NVML; raises Refused."""
        if self._nvml is None:
            self._nvml = Nvml()
        return self._nvml


class SharingDaemon:
    """Makes true what is wanted.

    1. ``_adopt``: what the last daemon changed on the machine is put back, its answers are read,
       tenants that stand parked stay so, all others are unlocked. Then processes in ``held.json``
       that no tenant names are unlocked.
    2. ``once``, again and again: if ``tenants.json`` changed, tenants come and go, and a wish to
       park or to come back begins on the pool. Then finished wishes are taken note of, memory is
       compared with its limit, and ``held.json`` and ``status.json`` are written if they changed.
    3. ``close``: what is under way is finished, slices end, all that is not parked is unlocked.
    """

    def __init__(
        self, files: StateFiles, devices: DaemonDevices, linger_s: float = _LINGER_S
    ) -> None:
        self._files, self._devices, self._linger_s = files, devices, linger_s
        self._tenants: dict[str, Tenant] = {}
        self._threads: dict[int, SliceThread] = {}
        self._pages = devices.pages(files.pages)
        # Many: those that wait for room must not keep one from leaving that would make it.
        self._pool = ThreadPoolExecutor(64, "park")
        self._underway: dict[str, Future[ParkOutcome]] = {}
        self._seen: tuple[int, int] | None = None
        self._told: dict[str, Any] = {}
        self._held: set[tuple[int, int, str]] = set()
        self._busy_at = time.monotonic()
        self._excess: set[int] = set()
        self._on_device: dict[int, dict[int, int]] = {}
        self._calls: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.stopping = False
        self.room_s = _ROOM_S

    def wake(self) -> None:
        """Look again now. Safe in a handler of signals: a SimpleQueue can be used there."""
        self._calls.put(None)

    def run(self) -> None:
        """Go on until told to stop, or until there is no tenant for a while."""
        self._adopt()
        try:
            while not self.stopping and not self._is_done():
                try:
                    self.once()
                except OSError:  # a full disk, for instance: slices go on
                    traceback.print_exc()
                with suppress(queue.Empty):
                    self._calls.get(timeout=SAMPLE_S)
        finally:
            self.close()

    def once(self) -> None:
        """Look at what is wanted and at how each tenant stands, and do what there is to do."""
        seen = self._files.changed()
        if seen != self._seen:
            self._seen = seen
            self._heed(self._files.wanted())
        self._on_device.clear()
        for tenant in self._tenants.values():
            self._settle(tenant)
            self._watch(tenant)
        self._note()
        self._end_excess()  # after the note: the reason is on disk before the process is dead

    def close(self) -> None:
        """Unlock all but those that are parked."""
        # The pool first, then the slices: a parking that fails puts its tenant back on a thread.
        self._pool.shutdown()
        for tenant in self._tenants.values():
            self._settle(tenant, last=True)
        for thread in self._threads.values():
            thread.close()
        for tenant in self._tenants.values():
            if tenant.standing == "running":
                tenant.release()
        self._note(closing=True)

    def _adopt(self) -> None:
        """Take over what another daemon left: its answers, and its locks."""
        self._pages.put_back()
        wanted = self._files.wanted()
        told = self._files.status().get("tenants", {})
        self._files.tell(
            {"pid": os.getpid(), "tenants": told}
        )  # its number first: the engine signals it by that
        named = {(request.pid, request.ticks) for request in wanted}
        for request in wanted:
            done = told.get(request.key, {}).get("outcome", {})
            tenant = self._take_in(request)
            # An older one is no answer to what is wanted, but tells what the tenant needs room for.
            if tenant is not None and 0 < done.get("turn", 0) <= request.turn:
                tenant.outcome = ParkOutcome.decode(done)
            if tenant is not None and tenant.stands_parked():
                tenant.standing = "parked"
            elif tenant is not None:
                tenant.release()
                if request.want == "run":  # whatever brought it back did so where it is wanted
                    tenant.devices = request.onto or tenant.devices
        ours = {pid for tenant in self._tenants.values() for pid in tenant.processes.pids}
        for pid, ticks, means in self._files.held():
            if pid not in ours and (pid, ticks) not in named:
                with suppress(DriverRefused):
                    let_go(self._devices.driver(means), pid, ticks)

    def _heed(self, wanted: list[TenantRequest]) -> None:
        names = {request.key for request in wanted}
        for key in [key for key in self._tenants if key not in names]:
            self._let_go(self._tenants[key])
            del self._tenants[key]
        for request in wanted:
            tenant = self._tenants.get(request.key)
            if tenant is not None and (tenant.request.pid, tenant.request.ticks) != (
                request.pid,
                request.ticks,
            ):
                self._let_go(tenant)
                tenant = None
            if tenant is None:
                tenant = self._take_in(request)
            if tenant is not None:
                self._change(tenant, request)

    def _take_in(self, request: TenantRequest) -> Tenant | None:
        try:
            driver = self._devices.driver(request.means)
        except DriverRefused as refusal:
            self._told = {}
            idle = SignalDriver()
            tenant = Tenant(
                request, idle, TenantProcesses(idle, list), WorkerProcesses(request.pid), "gone"
            )
            tenant.problem = str(refusal)
            self._tenants[request.key] = tenant
            return None
        tree = WorkerProcesses(request.pid, request.others)
        if isinstance(driver, SignalDriver):
            driver.trees[request.pid] = tree
        tenant = Tenant(
            request, driver, TenantProcesses(driver, finder(request, driver, tree)), tree
        )
        tenant.processes.refresh()
        self._tenants[request.key] = tenant
        return tenant

    def _change(self, tenant: Tenant, request: TenantRequest) -> None:
        """Do as it is wanted now; what is under way is seen through first."""
        tenant.request, tenant.tree.others = request, frozenset(request.others)
        if tenant.standing == "gone" or request.key in self._underway:
            return
        if request.want == "park" and tenant.standing == "running":
            self._park(tenant)
        elif request.want == "run" and tenant.standing == "parked":
            self._unpark(tenant)
        elif tenant.standing == "running":
            onto = request.onto if tenant.outcome.turn < request.turn else ()
            if tenant.devices != (onto or request.devices):
                self._leave_slices(tenant)
                tenant.devices = onto or request.devices
            self._join_slices(tenant)
            if tenant.outcome.turn < request.turn:
                # Another daemon brought it back and died before it could say so.
                tenant.outcome = ParkOutcome(request.turn, how=tenant.how, why="it runs already")
        elif tenant.outcome.turn < request.turn:
            tenant.outcome = ParkOutcome(request.turn, how=tenant.how, why="it was parked already")

    def _park(self, tenant: Tenant) -> None:
        tenant.standing = "parking"
        self._begin(tenant, self._pool.submit(self._bring_off, tenant))

    def _bring_off(self, tenant: Tenant) -> ParkOutcome:
        if tenant.request.means != "cuda":
            self._leave_slices(tenant)
            return tenant.park(lambda: 0)
        if why := self._refusal(tenant):
            return ParkOutcome(tenant.request.turn, stays_mib=self._held_mib(tenant), why=why)
        tenant.await_low(lambda: self._held_mib(tenant))
        self._leave_slices(tenant)
        with self._pages.always():
            return tenant.park(lambda: self._held_mib(tenant))

    def _refusal(self, tenant: Tenant) -> str:
        """Why a tenant is better not parked: it could not come back, or does not fit into the host.

        Asked with the tenant still on its GPU and in its turns: nothing has to be undone.
        """
        pids = tenant.processes.pids
        with suppress(DriverRefused):
            held = {pid for one in tenant.devices for pid in self._devices.held(one)}
            unknown = {one.pid for one in tenant.tree()} & held
            if why := restorable.refusal(pids, unknown, self._devices.driver_version()):
                return why
        # All that is on its way to the host takes of the same memory.
        leaving = [one for one in list(self._tenants.values()) if one.standing == "parking"]
        room_mib = min(map(self._devices.host_mib, pids), default=0)
        needs_mib = sum(map(self._held_mib, leaving))
        return memory_room.host_lack(needs_mib, room_mib) if pids else ""

    def _unpark(self, tenant: Tenant) -> None:
        tenant.standing = "unparking"
        self._begin(tenant, self._pool.submit(self._bring_back, tenant, tenant.outcome.freed_mib))

    def _bring_back(self, tenant: Tenant, needs_mib: int) -> ParkOutcome:
        """Wait for room, then come back: a restore that ran out of memory cannot be repeated."""
        onto = tenant.request.onto or tenant.devices
        deadline = time.monotonic() + self.room_s
        while tenant.request.means == "cuda" and tenant.request.alive:
            try:
                why = memory_room.gpu_lack(needs_mib, sum(map(self._devices.free_mib, onto)))
            except DriverRefused:  # nothing tells
                why = ""
            tenant.waits_for = why
            if not why:
                break
            if self.stopping:  # not answered: the next daemon goes on with it
                return ParkOutcome(tenant.request.turn - 1, freed_mib=needs_mib, why=why)
            if time.monotonic() > deadline:
                return ParkOutcome(tenant.request.turn, freed_mib=needs_mib, why=why)
            time.sleep(_LOOK_S)
        return tenant.unpark(self._moves(tenant))

    def _begin(self, tenant: Tenant, future: Future[ParkOutcome]) -> None:
        self._underway[tenant.request.key] = future
        # Called on the thread of the pool: it only wakes the main thread, which takes the result.
        future.add_done_callback(lambda _: self.wake())

    def _settle(self, tenant: Tenant, *, last: bool = False) -> None:
        """Take note of what was under way and is done."""
        future = self._underway.get(tenant.request.key)
        if future is None or not future.done():
            return
        del self._underway[tenant.request.key]
        try:
            tenant.outcome = future.result()
        except Exception as error:  # noqa: BLE001 - it must be answered
            tenant.outcome = ParkOutcome(tenant.request.turn, how="none", why=repr(error))
        tenant.waits_for = ""
        parking, worked = tenant.standing == "parking", tenant.outcome.how != "none"
        tenant.standing = "parked" if parking == worked else "running"
        if not last:
            if tenant.standing == "running":
                self._join_slices(tenant)
            if tenant.outcome.turn < tenant.request.turn:
                self._change(tenant, tenant.request)

    def _watch(self, tenant: Tenant) -> None:
        """Whether it is there, and keeps to its memory."""
        if tenant.standing == "gone":
            return
        if not tenant.request.alive and tenant.request.key not in self._underway:
            self._leave_slices(tenant)
            tenant.standing = "gone"
            return
        if tenant.request.means == "signals" or tenant.standing != "running":
            return
        if not tenant.request.sliced:  # it is on no thread that would look for its processes
            tenant.processes.look(time.monotonic())
        with suppress(DriverRefused):
            for device in tenant.devices:
                if device not in self._on_device:  # one question for all tenants of a device
                    self._on_device[device] = self._devices.held(device)
                held = self._on_device[device]
                tenant.held.append(memory_limit.held_mib(held, tenant.processes.pids))
                why = memory_limit.over(held, tenant.processes.pids, tenant.request.memory_mib)
                if why:
                    tenant.problem = why
                    self._excess.update(tenant.processes.pids)

    def _let_go(self, tenant: Tenant) -> None:
        """Give a tenant up: it goes on, whatever was done to it."""
        self._leave_slices(tenant)
        future = self._underway.pop(tenant.request.key, None)
        if future is not None:
            with suppress(Exception):
                future.result(_ANSWER_S)
        if tenant.standing != "gone":
            tenant.release()
        if isinstance(tenant.driver, SignalDriver):
            tenant.driver.trees.pop(tenant.request.pid, None)

    def _join_slices(self, tenant: Tenant) -> None:
        request = tenant.request
        if not request.sliced:
            return
        device = tenant.devices[0]  # a share is one of one device
        thread = self._threads.get(device)
        if thread is None:
            meter = self._devices.meter(request.means, device)
            thread = self._threads[device] = SliceThread(device, meter)
            thread.start()
        runner, claim = thread.runner, tenant.claim
        # On the thread of the device: a runner is used by one thread alone.
        thread.do(lambda: runner.join(request.key, claim, tenant.processes))

    def _leave_slices(self, tenant: Tenant) -> None:
        for device in tenant.devices:
            thread = self._threads.get(device)
            if thread is not None:
                runner = thread.runner
                thread.do(lambda runner=runner: runner.leave(tenant.request.key))  # type: ignore[misc]

    def _moves(self, tenant: Tenant) -> list[Move]:
        onto = tenant.request.onto
        if tenant.request.means != "cuda" or not onto or onto == tenant.devices:
            return []
        uuid = self._devices.uuid
        return [(uuid(a), uuid(b)) for a, b in zip(tenant.devices, onto, strict=True)]

    def _held_mib(self, tenant: Tenant) -> int:
        with suppress(DriverRefused):
            pids = tenant.processes.pids
            held = self._devices.held
            return sum(memory_limit.held_mib(held(device), pids) for device in tenant.devices)
        return 0

    def _end_excess(self) -> None:
        """Kill processes that hold more than they may: their neighbours would run out of memory."""
        for pid in self._excess:
            process = process_tree.look(pid)
            if process is not None:
                process_tree.send(process, signal.SIGKILL)
        self._excess.clear()

    def _note(self, *, closing: bool = False) -> None:
        """Write down which processes may be locked, and how each tenant stands, where it changed.

        A tenant is in ``held.json`` as long as it is known, not only while it is locked: turns
        change too often to be written, and to unlock one that is not locked does no harm.
        """
        held = set()
        for tenant in self._tenants.values():
            if closing and tenant.standing == "running":
                continue
            for pid in tenant.processes.pids:
                process = process_tree.look(pid)
                if process is not None:
                    held.add((pid, process.ticks, tenant.request.means))
        if held != self._held:
            self._held = held
            self._files.hold(sorted(held))
        status = {
            "pid": os.getpid(),
            "tenants": {
                key: {
                    "standing": tenant.standing,
                    "outcome": asdict(tenant.outcome),
                    "problem": tenant.problem or tenant.waits_for or tenant.live_problem,
                    "processes": len(tenant.processes.pids),
                }
                for key, tenant in self._tenants.items()
            },
        }
        if status != self._told:
            self._told = status
            self._files.tell(status)

    def _is_done(self) -> bool:
        """Whether there has been no tenant for a while."""
        if any(tenant.standing != "gone" for tenant in self._tenants.values()):
            self._busy_at = time.monotonic()
        return time.monotonic() - self._busy_at > self._linger_s


def main() -> None:
    """Look after the tenants of a home: ``daemon FOLDER``."""
    files = StateFiles(Path(sys.argv[1]))
    daemon = SharingDaemon(files, DaemonDevices())

    def stop(*_: object) -> None:
        daemon.stopping = True
        daemon.wake()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    signal.signal(signal.SIGHUP, lambda *_: daemon.wake())
    # Handlers before the lock: the engine signals the process that holds it.
    deadline = time.monotonic() + _LOCK_S
    while (lock := files.lock()) is None:  # an engine may only be looking whether there is one
        if time.monotonic() > deadline:
            sys.exit("there is a sharing daemon already")
        time.sleep(0.01)
    daemon.run()
    os.close(lock)
