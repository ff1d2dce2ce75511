"""What the engine calls to have devices shared: checks, environments, tenants, parking.

It writes down what is wanted (``state_files``), keeps a sharing daemon alive while there are
tenants, and reads what became of it. All it knows is in those files too: the next server goes on
where this one ended.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from roost.core.allocation import Seat
from roost.core.spec import WHOLE, Qos, Resources, RunId, Way
from roost.engines.local.devices import Machine
from roost.engines.local.gpu import framework_memory, mps
from roost.engines.local.gpu.daemon_client import DaemonClient
from roost.engines.local.gpu.driver import CudaDriver, DriverRefused
from roost.engines.local.gpu.state_files import StateFiles
from roost.engines.local.gpu.telemetry import Nvml
from roost.engines.local.gpu.tenant import TenantRequest
from roost.errors import InvalidSpec, Retryable, RoostError

_log = logging.getLogger(__name__)
#: How often it looks after the daemon and its tenants, and for an answer that it waits for.
_LOOK_S = 0.5
_POLL_S = 0.02
#: How long parking may take: 40 GiB need half a minute.
_PARK_S = 600.0
#: Problems of runs that are remembered.
_REMEMBERED = 1000
#: How long an MPS daemon stays without a run that needs it; when the server stops, only as long as
#: a worker takes to start.
_CLOSING_S = 2.0
_DAEMON_S = 30.0
#: Ends so close to each other may have the same cause, where runs share a GPU side by side.
_TOGETHER_S = 30.0
_SPATIAL = "it shares its GPU the spatial way: it can only be stopped where it is"


@dataclass(frozen=True, slots=True)
class ParkResult:
    """What parking came to, or bringing back.

    ``how``: ``checkpoint`` (off the GPU), ``stopped`` (a CPU slot: nothing to free) or ``none``,
    and then ``why``.
    """

    took_s: float = 0.0
    freed_mib: int = 0
    stays_mib: int = 0
    how: str = "none"
    why: str = ""


@dataclass(slots=True)
class _Run:
    """A run as it was attached."""

    seats: tuple[Seat, ...]
    needs: dict[str, Resources]
    workers: dict[str, tuple[int, int]]
    parked: bool = False


class GpuSharing:
    """Has the devices of this machine shared; one per engine.

    1. ``env`` gives a worker what it needs to keep to its share: a limit for its framework, or the
       MPS daemon of its GPU.
    2. ``attach`` names the processes of a run once they are up. They become tenants in
       ``tenants.json``, and the sharing daemon is told to look (SIGHUP).
    3. ``park`` and ``unpark`` write a wish with a number, and wait until ``status.json`` has an
       answer to that number.
    4. ``detach`` takes the tenants out; the daemon lets go of them.

    All of it runs on the engine's loop. MPS daemons start and end on other threads, under a lock.
    """

    def __init__(self, home: Path, machine: Machine, python: str) -> None:
        self._machine = machine
        self._folder = home / "gpu"
        self._files = StateFiles(self._folder)
        self._client = DaemonClient(self._files, python, lambda: bool(self._requests))
        self._requests: dict[str, TenantRequest] = {}
        self._runs: dict[RunId, _Run] = {}
        self._daemons: dict[int, mps.MpsDaemon] = {}
        self._spatial: dict[RunId, frozenset[int]] = {}
        #: Runs that shared GPUs side by side until then.
        self._left: dict[RunId, tuple[float, frozenset[int]]] = {}
        self._needed_at: dict[int, float] = {}
        #: Held while an MPS daemon begins or ends: threads of the engine ask for them, and one
        #: that is just needed must not be ended.
        self._serving = threading.Lock()
        self._problems: dict[RunId, str] = {}
        #: Is told of every problem of a run as it is found.
        self.on_problem: Callable[[RunId, str], None] = lambda _run, _problem: None
        self._turn = 0
        self._minding: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take up what the last server left, and mind the sharing daemon."""
        self._folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        self._folder.chmod(0o711)  # jobs of other accounts pass through it, whatever the umask is
        if self._machine.real:
            framework_memory.write_hook(self._folder / "hook")
            left = [mps.device_of(path) for path in self._folder.glob("mps-*-log")]
            self._needed_at = dict.fromkeys(left, time.monotonic())
        self._requests = {request.key: request for request in self._files.wanted() if request.alive}
        # An answer that was given before must not pass for one to what is asked next.
        told = self._files.status().get("tenants", {}).values()
        turns = [one.get("outcome", {}).get("turn", 0) for one in told]
        self._turn = max(
            (*turns, *(request.turn for request in self._requests.values())), default=0
        )
        if self._files.changed() is not None:
            self._files.want(self._requests.values())
        self._client.ensure()
        self._minding = asyncio.create_task(self._mind())

    async def close(self) -> None:
        """Let go: the sharing daemon and MPS daemons in use stay, slices and limits hold."""
        if self._minding is not None:
            self._minding.cancel()
            await asyncio.gather(self._minding, return_exceptions=True)
            self._minding = None
        with suppress(OSError, RoostError):
            await self._end_daemons(_CLOSING_S)

    async def rest(self) -> None:
        """After ``close``: have the sharing daemon end, so that nothing stays locked.

        For an engine that takes all of its processes with it; the next one starts another daemon.
        What is parked stays parked.
        """
        deadline = time.monotonic() + _PARK_S
        while await asyncio.to_thread(self._files.has_daemon) and time.monotonic() < deadline:
            self._client.end()
            await asyncio.sleep(_LOOK_S)

    def is_parked(self, run: RunId) -> bool:
        """Whether a run is off its devices, or on its way."""
        known = self._runs.get(run)
        return known is not None and known.parked

    def check(self, need: Resources) -> str:
        """Why this machine cannot do what is asked; "" if it can."""
        if self._machine.partitioned and need.gpus > 1:
            return "a process sees one partition of a GPU: ask for one, and for more workers"
        if self._machine.partitioned and 0 < need.share_milli < WHOLE and need.gpus:
            return "a partition of a GPU is not shared any further: ask for a whole one (gpus: 1)"
        if not need.gpus or need.share_milli >= WHOLE:
            return ""
        if not self._machine.real:
            if need.way is Way.SPATIAL:
                return "CPU slots are shared by turns (temporal); spatial shares need a GPU"
            return ""
        if need.way is Way.SPATIAL:
            return mps.available()
        return CudaDriver.missing()

    def env(self, seat: Seat, need: Resources) -> dict[str, str]:
        """What a worker needs to keep to its share and its memory.

        ``PYTHONPATH`` comes before one that the job sets itself. Raises InvalidSpec if this machine
        cannot do it, Retryable if it cannot just now.
        """
        limit = self._limit_mib(seat, need) if seat.gpus else 0
        if not self._machine.real:  # it is not held there, but a job that looks can keep to it
            return {framework_memory.VARIABLE: str(limit)} if limit else {}
        if not seat.gpus:
            return {}
        if seat.share_milli >= WHOLE or need.way is Way.TEMPORAL:
            total = self._machine.node.gpu_memory_mib
            return framework_memory.env(limit, total, self._folder / "hook")
        if why := self.check(need):
            raise InvalidSpec(why)
        try:
            with self._serving:
                daemon = self._daemon(seat.gpus[0])
                self._needed_at[seat.gpus[0]] = time.monotonic()
                daemon.start()
        except (DriverRefused, OSError) as error:
            raise Retryable(str(error), after=10.0) from None
        found = daemon.env(
            seat.share_milli,
            limit,
            capped=need.qos is Qos.FIXED,
            eager=need.qos is Qos.BEST_EFFORT,
        )
        return {**found, framework_memory.VARIABLE: str(limit)}

    async def attach(
        self,
        run: RunId,
        seats: Sequence[Seat],
        needs: Mapping[str, Resources],
        workers: Mapping[str, tuple[int, int]],
    ) -> None:
        """Hold slices and limits for these processes from now on; once more does no harm.

        While its workers are not known (a run prepares itself, or ends), what serves it stays.
        Raises Retryable where its limits cannot be held.
        """
        self._spatial[run] = frozenset(
            gpu for seat in seats if self._is_spatial(seat, needs[seat.role]) for gpu in seat.gpus
        )
        if not workers:
            return
        # Processes that were parked still are, but not others that took their places.
        same = set(workers.values())
        parked = any(e.want == "park" and (e.pid, e.ticks) in same for e in self._of(run))
        self._runs[run] = _Run(tuple(seats), dict(needs), dict(workers), parked)
        wanted = {
            request.key: request for request in self._requests_of(run) if self._is_held(request)
        }
        gone = {request.key for request in self._of(run)} - set(wanted)
        self._publish({**self._without(gone), **wanted})
        if why := await asyncio.to_thread(self._unserved, run):
            raise Retryable(why, after=10.0)

    async def detach(self, run: RunId) -> None:
        """A run is over, or goes on unguarded."""
        self._runs.pop(run, None)
        devices = self._spatial.pop(run, frozenset())
        gone = {request.key for request in self._of(run)}
        if gone:
            self._note_problems()
            self._publish(self._without(gone))
        for device in devices:
            self._needed_at[device] = time.monotonic()
        now = time.monotonic()
        self._left = {one: left for one, left in self._left.items() if now - left[0] < _TOGETHER_S}
        if devices:
            self._left[run] = now, devices

    async def park(self, run: RunId) -> ParkResult:
        """Take all processes of a run off their devices; they live on."""
        known = self._runs.get(run)
        if known is None:
            return ParkResult(why="nothing is known of its processes")
        if self._spatial.get(run):
            return ParkResult(why=_SPATIAL)
        if not self._machine.real and not self._of(run):
            return ParkResult(how="stopped", why="it has its CPU slots to itself")
        if self._machine.real and (why := CudaDriver.missing()):
            return ParkResult(why=why)
        known.parked = True
        try:
            parked = await self._wish(run, "park")
        except OSError as error:
            parked = ParkResult(why=str(error))
        if parked.how == "none":
            known.parked = False
            await self._take_back(run)
        return parked

    async def unpark(self, run: RunId, seats: Sequence[Seat]) -> ParkResult:
        """Bring a run back, on the devices of these seats, and let it go on."""
        known = self._runs.get(run)
        if known is None:
            return ParkResult(why="nothing is known of its processes")
        onto = {seat.name: seat for seat in seats}
        if set(onto) != {seat.name for seat in known.seats}:
            return ParkResult(why="it has other workers than when it was parked")
        before = known.seats
        known.seats, known.parked = tuple(seats), False
        if not self._of(run):
            return ParkResult(how="stopped" if not self._machine.real else "none")
        back = await self._wish(run, "run", {seat.name: seat.gpus for seat in before})
        if back.how == "none":
            known.seats, known.parked = before, True
        else:
            wanted = {e.key: e for e in self._requests_of(run) if self._is_held(e)}
            self._publish({**self._without({e.key for e in self._of(run)}), **wanted})
        return back

    def problem(self, run: RunId) -> str:
        """What went wrong for a run; "" if nothing did."""
        self._note_problems()
        return self._unserved(run) or self._problems.get(run, "")

    def beside(self, run: RunId) -> str:
        """With whom a run shared a GPU side by side, so that a fault of one is one of all."""
        ended = time.monotonic() - _TOGETHER_S
        near = {other: held for other, held in self._spatial.items() if other != run}
        near |= {other: held for other, (at, held) in self._left.items() if at >= ended}
        near.pop(run, None)
        for device in sorted(self._spatial.get(run, ())):
            if many := sum(device in held for held in near.values()):
                others = "another run" if many == 1 else f"{many} others"
                return f"it shared GPU {device} side by side with {others}"
        return ""

    def _unserved(self, run: RunId) -> str:
        """Which MPS daemon a run needs and does not have."""
        for device in self._spatial.get(run, ()):
            if not self._daemon(device).alive():
                return f"the MPS daemon of GPU {device} is gone; what shared it has lost its GPU"
        return ""

    def _requests_of(
        self, run: RunId, before: Mapping[str, tuple[int, ...]] | None = None
    ) -> Iterable[TenantRequest]:
        """A run as the daemon is to know it; ``before``: the devices that it was parked from."""
        known = self._runs[run]
        for seat in known.seats:
            if seat.name not in known.workers or not seat.gpus:
                continue
            need = known.needs[seat.role]
            spatial = self._is_spatial(seat, need)
            pid, ticks = known.workers[seat.name]
            last = self._requests.get(_key(run, seat.name))
            yield TenantRequest(
                _key(run, seat.name),
                pid,
                ticks,
                (before or {}).get(seat.name, seat.gpus),
                seat.share_milli,
                str(need.qos),
                self._limit_mib(seat, need) if self._machine.real else 0,
                seat.share_milli < WHOLE and not spatial,
                "mps" if spatial else "cuda" if self._machine.real else "signals",
                "park" if known.parked else "run",
                last.turn if last else 0,
                seat.gpus,
                tuple(other for other, _ in known.workers.values() if other != pid),
            )

    def _is_held(self, request: TenantRequest) -> bool:
        """Whether there is anything to hold for it."""
        return request.sliced or bool(request.memory_mib) or request.want == "park"

    async def _wish(
        self, run: RunId, want: str, before: Mapping[str, tuple[int, ...]] | None = None
    ) -> ParkResult:
        """Have something done to all workers of a run, and wait for what becomes of it."""
        self._turn += 1
        turn = self._turn
        wanted = {
            request.key: replace(request, want=want, turn=turn)
            for request in self._requests_of(run, before)
        }
        if not wanted:
            return ParkResult(why="it has no process on a device")
        self._publish({**self._requests, **wanted})
        deadline = time.monotonic() + _PARK_S
        while time.monotonic() < deadline:
            status = await asyncio.to_thread(self._files.status)
            told = [status.get("tenants", {}).get(key) for key in wanted]
            if all(one and one["outcome"]["turn"] >= turn for one in told):
                return _summed(one["outcome"] for one in told if one)
            if all(one and one["standing"] == "gone" for one in told):
                return ParkResult(why=self.problem(run) or "its processes are gone")
            if not self._requests.keys() >= wanted.keys():
                return ParkResult(why=self.problem(run) or "it ended meanwhile")
            await asyncio.sleep(_POLL_S)
        return ParkResult(why=f"the sharing daemon did not answer within {_PARK_S:g} s")

    async def _take_back(self, run: RunId) -> None:
        """What could not be parked goes on, all of it."""
        if run in self._runs and self._of(run):
            await self._wish(run, "run")

    def _publish(self, requests: Mapping[str, TenantRequest]) -> None:
        """Write down what is wanted, and have the sharing daemon look."""
        if dict(requests) != self._requests:
            self._files.want(requests.values())
            self._requests = dict(requests)  # only what is written is not written again
        self._client.ensure()

    async def _mind(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                self._note_problems()
                self._forget_dead()
                await self._end_daemons(_DAEMON_S)
                if self._client.is_missing():
                    _log.warning("the sharing daemon is gone: another one takes over")
                    self._client.ensure()
            except (OSError, RoostError) as error:
                _log.warning("cannot look after shared devices: %s", error)

    def _forget_dead(self) -> None:
        """Take out workers that are gone, whether or not the engine said so."""
        dead = {key for key, request in self._requests.items() if not request.alive}
        if dead:
            self._publish(self._without(dead))

    async def _end_daemons(self, idle_s: float) -> None:
        """End the MPS daemons that no run has needed for a while."""
        used = {device for held in self._spatial.values() for device in held}
        for device, needed_at in tuple(self._needed_at.items()):
            if device not in used and time.monotonic() - needed_at > idle_s:
                await asyncio.to_thread(self._end_daemon, device, needed_at)

    def _end_daemon(self, device: int, needed_at: float) -> None:
        with self._serving:
            if self._needed_at.get(device) == needed_at:  # no worker has needed it since
                self._daemon(device).stop()
                del self._needed_at[device]

    def _note_problems(self) -> None:
        tenants = self._files.status().get("tenants", {})
        found: dict[RunId, str] = {}
        over: set[RunId] = set()
        for run in self._runs:
            for name in self._runs[run].workers:
                told = tenants.get(_key(run, name), {})
                problem = f"{name} {told['problem']}" if told.get("problem") else ""
                found.setdefault(run, problem)
                found[run] = found[run] or problem
                over |= {run} if told.get("standing", "gone") == "gone" else set()
        for run, problem in found.items():
            # What went wrong before an end stays; what is over while it runs is no news any more.
            if problem != self._problems.get(run, "") and (problem or run not in over):
                self._problems[run] = problem
                self.on_problem(run, problem)
        for run in list(self._problems)[:-_REMEMBERED]:
            del self._problems[run]

    def _of(self, run: RunId) -> list[TenantRequest]:
        return [
            request for request in self._requests.values() if request.key.startswith(_key(run, ""))
        ]

    def _without(self, keys: Iterable[str]) -> dict[str, TenantRequest]:
        gone = set(keys)
        return {key: request for key, request in self._requests.items() if key not in gone}

    def _limit_mib(self, seat: Seat, need: Resources) -> int:
        if need.gpu_memory_mib or seat.share_milli >= WHOLE:
            return need.gpu_memory_mib
        return self._machine.node.gpu_memory_mib * seat.share_milli // WHOLE

    def _is_spatial(self, seat: Seat, need: Resources) -> bool:
        shared = self._machine.real and seat.share_milli < WHOLE
        return shared and need.way is Way.SPATIAL

    def _daemon(self, device: int) -> mps.MpsDaemon:
        if device not in self._daemons:
            nvml = Nvml()
            uuid = nvml.uuid(device)
            nvml.close()
            self._daemons[device] = mps.MpsDaemon(self._folder, uuid, device)
        return self._daemons[device]


def _key(run: RunId, worker: str) -> str:
    return f"{run}/{worker}"


def _summed(outcomes: Iterable[Mapping[str, Any]]) -> ParkResult:
    """What became of a run as a whole: as good as the worst of its workers."""
    all_of = list(outcomes)
    worst = next((one for one in all_of if one["how"] == "none"), all_of[0])
    return ParkResult(
        max(one["took_s"] for one in all_of),
        sum(one["freed_mib"] for one in all_of),
        sum(one["stays_mib"] for one in all_of),
        worst["how"],
        worst["why"],
    )
