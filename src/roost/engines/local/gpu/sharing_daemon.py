"""The warden: the one process that locks others, and that unlocks everybody when it ends.

It makes true what the engine wrote down (``book``) and writes down what is so. Slices of time run
on a thread for each shared device; parking and bringing back on threads of their own, for they
take seconds. It needs no server, and outlives it. A warden that is killed is replaced by another,
which finds everything in the files: whoever is to run is unlocked first of all.

It ends when it is told to (SIGTERM) or when there is nobody left to guard. What was parked stays
parked, in the memory of the host, until a warden is told to bring it back.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import time
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from roost.engines.local.gpu import memory_limit
from roost.engines.local.gpu.activity_meters import CpuMeter, GpuMeter
from roost.engines.local.gpu.driver import CheckpointDriver, CudaDriver, DriverRefused, Move
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

_LOCK_S = 3.0
_LINGER_S = 5.0
_ANSWER_S = 30.0


class DaemonDevices:
    """What the warden works with, by means: made when first needed, replaced in tests."""

    def __init__(self) -> None:
        self._drivers: dict[str, CheckpointDriver] = {}
        self._nvml: Nvml | None = None

    def driver(self, means: str) -> CheckpointDriver:
        """Who locks processes; raises Refused."""
        if means not in self._drivers:
            self._drivers[means] = CudaDriver() if means == "cuda" else SignalDriver()
        return self._drivers[means]

    def meter(self, means: str, device: int) -> ActivityMeter:
        """Who tells idle tenants of a device."""
        if means == "cuda":
            with suppress(DriverRefused):  # by CPU time where nobody knows better
                return GpuMeter(self.nvml(), device)
            return CpuMeter()
        driver = self.driver(means)
        return CpuMeter(driver.family) if isinstance(driver, SignalDriver) else CpuMeter()

    def held(self, device: int) -> dict[int, int]:
        """The processes of a GPU and the MiB that each holds."""
        return self.nvml().processes(device)

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
    """Makes true what is wanted."""

    def __init__(
        self, book: StateFiles, machinery: DaemonDevices, linger_s: float = _LINGER_S
    ) -> None:
        self._book, self._machinery, self._linger_s = book, machinery, linger_s
        self._wards: dict[str, Tenant] = {}
        self._desks: dict[int, SliceThread] = {}
        self._pages = machinery.pages(book.pages)
        self._pool = ThreadPoolExecutor(8, "park")
        self._underway: dict[str, Future[ParkOutcome]] = {}
        self._seen: tuple[int, int] | None = None
        self._told: dict[str, Any] = {}
        self._held: set[tuple[int, int, str]] = set()
        self._busy_at = time.monotonic()
        self._excess: set[int] = set()
        self._on_device: dict[int, dict[int, int]] = {}
        self._calls: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.stopping = False

    def wake(self) -> None:
        """Look again now; also from a handler of signals."""
        self._calls.put(None)

    def run(self) -> None:
        """Guard until told to stop, or until there is nobody to guard."""
        self._adopt()
        try:
            while not self.stopping and not self._is_done():
                try:
                    self.once()
                except OSError:  # a full disk, for instance: what is locked stays on its rota
                    traceback.print_exc()
                with suppress(queue.Empty):
                    self._calls.get(timeout=SAMPLE_S)
        finally:
            self.close()

    def once(self) -> None:
        """Look at what is wanted and at how everybody stands, and do what there is to do."""
        seen = self._book.changed()
        if seen != self._seen:
            self._seen = seen
            self._heed(self._book.wanted())
        self._on_device.clear()
        for ward in self._wards.values():
            self._settle(ward)
            self._watch(ward)
        self._note()
        self._end_excess()  # once it is written down why

    def close(self) -> None:
        """Unlock everybody but those who are parked."""
        self._pool.shutdown()
        for ward in self._wards.values():
            self._settle(ward, last=True)
        for desk in self._desks.values():
            desk.close()
        for ward in self._wards.values():
            if ward.standing == "running":
                ward.release()
        self._note(closing=True)

    def _adopt(self) -> None:
        """Know what another warden left: its answers, and its locks on whom nobody names now."""
        self._pages.put_back()
        wanted = self._book.wanted()
        told = self._book.status().get("tenants", {})
        self._book.tell({"pid": os.getpid(), "tenants": told})  # who guards, before anybody is
        named = {(entry.pid, entry.ticks) for entry in wanted}
        for entry in wanted:
            done = told.get(entry.key, {}).get("outcome", {})
            ward = self._take_in(entry)
            if ward is not None and done.get("turn") == entry.turn and entry.turn:
                ward.outcome = ParkOutcome.decode(done)
            if ward is not None and ward.stands_parked():
                ward.standing = "parked"
            elif ward is not None:
                ward.release()
        ours = {pid for ward in self._wards.values() for pid in ward.tenant.pids}
        for pid, ticks, means in self._book.held():
            if pid not in ours and (pid, ticks) not in named:
                with suppress(DriverRefused):
                    let_go(self._machinery.driver(means), pid, ticks)

    def _heed(self, wanted: list[TenantRequest]) -> None:
        names = {entry.key for entry in wanted}
        for key in [key for key in self._wards if key not in names]:
            self._let_go(self._wards[key])
            del self._wards[key]
        for entry in wanted:
            ward = self._wards.get(entry.key)
            if ward is not None and (ward.entry.pid, ward.entry.ticks) != (entry.pid, entry.ticks):
                self._let_go(ward)
                ward = None
            if ward is None:
                ward = self._take_in(entry)
            if ward is not None:
                self._change(ward, entry)

    def _take_in(self, entry: TenantRequest) -> Tenant | None:
        try:
            driver = self._machinery.driver(entry.means)
        except DriverRefused as refusal:
            self._told = {}
            idle = SignalDriver()
            ward = Tenant(
                entry, idle, TenantProcesses(idle, list), WorkerProcesses(entry.pid), "gone"
            )
            ward.problem = str(refusal)
            self._wards[entry.key] = ward
            return None
        kin = WorkerProcesses(entry.pid, entry.others)
        if isinstance(driver, SignalDriver):
            driver.kin[entry.pid] = kin
        ward = Tenant(entry, driver, TenantProcesses(driver, finder(entry, driver, kin)), kin)
        ward.tenant.refresh()
        self._wards[entry.key] = ward
        return ward

    def _change(self, ward: Tenant, entry: TenantRequest) -> None:
        """Do as it is wanted now; what is under way is seen through first."""
        ward.entry, ward.kin.others = entry, frozenset(entry.others)
        if ward.standing == "gone" or entry.key in self._underway:
            return
        if entry.want == "park" and ward.standing == "running":
            self._park(ward)
        elif entry.want == "run" and ward.standing == "parked":
            self._unpark(ward)
        elif ward.standing == "running":
            if ward.devices != entry.devices:
                self._off_rota(ward)
                ward.devices = entry.devices
            self._on_rota(ward)
            if ward.outcome.turn < entry.turn:
                ward.outcome = ParkOutcome(entry.turn, how="none", why="it runs already")
        elif ward.outcome.turn < entry.turn:
            ward.outcome = ParkOutcome(entry.turn, how=ward.how, why="it was parked already")

    def _park(self, ward: Tenant) -> None:
        ward.standing = "parking"
        self._begin(ward, self._pool.submit(self._bring_off, ward))

    def _bring_off(self, ward: Tenant) -> ParkOutcome:
        if ward.entry.means != "cuda":
            self._off_rota(ward)
            return ward.park(lambda: 0)
        ward.await_low(lambda: self._held_mib(ward))
        self._off_rota(ward)
        with self._pages.always():
            return ward.park(lambda: self._held_mib(ward))

    def _unpark(self, ward: Tenant) -> None:
        ward.standing = "unparking"
        self._begin(ward, self._pool.submit(lambda: ward.unpark(self._moves(ward))))

    def _begin(self, ward: Tenant, future: Future[ParkOutcome]) -> None:
        self._underway[ward.entry.key] = future
        future.add_done_callback(lambda _: self.wake())

    def _settle(self, ward: Tenant, *, last: bool = False) -> None:
        """Take note of what was under way and is done."""
        future = self._underway.get(ward.entry.key)
        if future is None or not future.done():
            return
        del self._underway[ward.entry.key]
        try:
            ward.outcome = future.result()
        except Exception as error:  # noqa: BLE001 - it must be answered
            ward.outcome = ParkOutcome(ward.entry.turn, how="none", why=repr(error))
        parking, worked = ward.standing == "parking", ward.outcome.how != "none"
        ward.standing = "parked" if parking == worked else "running"
        if not last:
            if ward.standing == "running":
                self._on_rota(ward)
            if ward.outcome.turn < ward.entry.turn:
                self._change(ward, ward.entry)

    def _watch(self, ward: Tenant) -> None:
        """Whether it is there, and keeps to its memory."""
        if ward.standing == "gone":
            return
        if not ward.entry.alive and ward.entry.key not in self._underway:
            self._off_rota(ward)
            ward.standing = "gone"
            return
        ward.problem = ward.problem or ward.tenant.problem
        if ward.entry.means != "cuda" or ward.standing != "running":
            return
        if not ward.entry.sliced:  # nobody else looks: it is on no rota
            ward.tenant.look(time.monotonic())
        with suppress(DriverRefused):
            for device in ward.devices:
                if device not in self._on_device:  # one question for all tenants of a device
                    self._on_device[device] = self._machinery.held(device)
                held = self._on_device[device]
                ward.held.append(memory_limit.held_mib(held, ward.tenant.pids))
                why = memory_limit.over(held, ward.tenant.pids, ward.entry.memory_mib)
                if why:
                    ward.problem = why
                    self._excess.update(ward.tenant.pids)

    def _let_go(self, ward: Tenant) -> None:
        """It is not ours to guard any more: it goes on, whatever was done to it."""
        self._off_rota(ward)
        future = self._underway.pop(ward.entry.key, None)
        if future is not None:
            with suppress(Exception):
                future.result(_ANSWER_S)
        if ward.standing != "gone":
            ward.release()
        if isinstance(ward.driver, SignalDriver):
            ward.driver.kin.pop(ward.entry.pid, None)

    def _on_rota(self, ward: Tenant) -> None:
        entry = ward.entry
        if not entry.sliced:
            return
        device = ward.devices[0]  # a share is one of one device
        desk = self._desks.get(device)
        if desk is None:
            meter = self._machinery.meter(entry.means, device)
            desk = self._desks[device] = SliceThread(device, meter)
            desk.start()
        rota, claim = desk.rota, ward.claim
        desk.do(lambda: rota.join(entry.key, claim, ward.tenant))

    def _off_rota(self, ward: Tenant) -> None:
        for device in ward.devices:
            desk = self._desks.get(device)
            if desk is not None:
                rota = desk.rota
                desk.do(lambda rota=rota: rota.leave(ward.entry.key))  # type: ignore[misc]

    def _moves(self, ward: Tenant) -> list[Move]:
        onto = ward.entry.onto
        if ward.entry.means != "cuda" or not onto or onto == ward.devices:
            return []
        uuid = self._machinery.uuid
        return [(uuid(a), uuid(b)) for a, b in zip(ward.devices, onto, strict=True)]

    def _held_mib(self, ward: Tenant) -> int:
        with suppress(DriverRefused):
            pids = ward.tenant.pids
            held = self._machinery.held
            return sum(memory_limit.held_mib(held(device), pids) for device in ward.devices)
        return 0

    def _end_excess(self) -> None:
        """Kill those who hold more than they may: their neighbours would run out of memory."""
        for pid in self._excess:
            process = process_tree.look(pid)
            if process is not None:
                process_tree.send(process, signal.SIGKILL)
        self._excess.clear()

    def _note(self, *, closing: bool = False) -> None:
        """Write down whom we may have locked, and how everybody stands, where it changed."""
        held = set()
        for ward in self._wards.values():
            if closing and ward.standing == "running":
                continue
            for pid in ward.tenant.pids:
                process = process_tree.look(pid)
                if process is not None:
                    held.add((pid, process.ticks, ward.entry.means))
        if held != self._held:
            self._held = held
            self._book.hold(sorted(held))
        status = {
            "pid": os.getpid(),
            "tenants": {
                key: {
                    "standing": ward.standing,
                    "outcome": asdict(ward.outcome),
                    "problem": ward.problem,
                    "processes": len(ward.tenant.pids),
                }
                for key, ward in self._wards.items()
            },
        }
        if status != self._told:
            self._told = status
            self._book.tell(status)

    def _is_done(self) -> bool:
        """Whether there is nobody left to guard, for a while now."""
        if any(ward.standing != "gone" for ward in self._wards.values()):
            self._busy_at = time.monotonic()
        return time.monotonic() - self._busy_at > self._linger_s


def main() -> None:
    """Guard the tenants of a home: ``warden FOLDER``."""
    book = StateFiles(Path(sys.argv[1]))
    warden = SharingDaemon(book, DaemonDevices())

    def stop(*_: object) -> None:
        warden.stopping = True
        warden.wake()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    signal.signal(signal.SIGHUP, lambda *_: warden.wake())
    # Whoever holds the lock is sent signals: it is ready for them by now.
    deadline = time.monotonic() + _LOCK_S
    while (lock := book.lock()) is None:  # somebody may only be looking whether there is a warden
        if time.monotonic() > deadline:
            sys.exit("there is a warden already")
        time.sleep(0.01)
    warden.run()
    os.close(lock)
