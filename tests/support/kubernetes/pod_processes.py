"""The life of one pod as processes of this machine, and what its status says of it.

Init containers run one after another, then all containers at once; those that restart always among
the init containers run beside. A container is a session of processes; when the first one ends, the
rest are killed, as with the end of a container. Restarts wait ever longer, but not as
long as on a real node. Resources, users and probes of a container have no effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.kubernetes.nodes import condition, timestamp
from tests.support.kubernetes.pod_files import ADDRESS, PodFiles, words

from roost.engines.local.shim import process_tree
from roost.errors import NotFound, RoostError
from roost.kubernetes.client.kinds import Object

_SANDBOX = Path(__file__).with_name("sandbox.py")
_ROUNDS = 20
_MESSAGE_BYTES = 2048
_KILLED = 128 + signal.SIGKILL
_BACK_OFF_S, _LONGEST_S, _MISSING_S = 0.2, 5.0, 0.3

#: Tells the API server the pod's status as it is now.
Told = Callable[[Object], Awaitable[None]]


@dataclass
class Container:
    """One container: its process while it runs, and what its status says."""

    spec: Object
    logs: Path
    state: Object = field(default_factory=lambda: {"waiting": {"reason": "PodInitializing"}})
    last: Object = field(default_factory=dict)
    restarts: int = 0
    process: asyncio.subprocess.Process | None = None

    @property
    def name(self) -> str:
        """Its name in the pod."""
        return str(self.spec["name"])

    @property
    def is_beside(self) -> bool:
        """Whether it is an init container that runs beside the others until they end."""
        return self.spec.get("restartPolicy") == "Always"

    @property
    def exit_code(self) -> int | None:
        """How it ended, once it did."""
        ended = self.state.get("terminated")
        return None if ended is None else int(ended["exitCode"])

    @property
    def log(self) -> Path:
        """What it writes."""
        return self.log_of(self.restarts)

    def log_of(self, restarts: int) -> Path:
        """What it wrote after so many restarts."""
        return self.logs / f"{self.name}.{restarts}.log"

    def tail(self) -> str:
        """The end of what it wrote, as much as a status takes."""
        return self.log.read_bytes()[-_MESSAGE_BYTES:].decode(errors="replace")

    def ask(self) -> None:
        """Ask its first process to end."""
        if self.process is not None and self.process.returncode is None:
            self.process.terminate()

    def kill(self) -> None:
        """Kill all of its processes, if the first one lives."""
        if self.process is not None and self.process.returncode is None:
            _kill_session(self.process.pid)

    def status(self) -> Object:
        """Its part of the pod's status."""
        runs = "running" in self.state
        return {
            "name": self.name,
            "image": self.spec.get("image", ""),
            "imageID": self.spec.get("image", ""),
            "ready": runs,
            "started": runs,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last,
        }


class PodProcesses:
    """A pod's life: ``run`` lives it, ``end`` cuts it short."""

    def __init__(self, pod: Object, folder: Path, contents: PodFiles, told: Told) -> None:
        self.pod, self._folder, self._contents, self._told = pod, folder, contents, told
        self._logs = folder / "logs"
        spec = pod["spec"]
        self._inits = [Container(one, self._logs) for one in spec.get("initContainers") or ()]
        self._mains = [Container(one, self._logs) for one in spec["containers"]]
        self._policy = str(spec.get("restartPolicy", "Always"))
        self._started_at = timestamp()
        self._ending = asyncio.Event()
        self._turn = asyncio.Lock()
        self._fault = ""
        self.over = asyncio.Event()

    def container(self, name: str) -> Container | None:
        """A container by name."""
        return next((one for one in (*self._inits, *self._mains) if one.name == name), None)

    @property
    def pids(self) -> list[int]:
        """The first processes of the containers that run."""
        found = [one.process for one in (*self._inits, *self._mains) if "running" in one.state]
        return [process.pid for process in found if process is not None]

    async def run(self) -> None:
        """Live until all containers are over; the status is told at each turn."""
        for folder in (self._logs, self._folder / "rooms", self._folder / "work"):
            folder.mkdir(parents=True, exist_ok=True)
        beside: list[asyncio.Task[None]] = []
        try:
            await self._tell()
            await self._lay_out()
            if await self._initialise(beside):
                await asyncio.gather(*(self._keep(one, self._policy) for one in self._mains))
            self.kill()
            await asyncio.gather(*beside)
        except RoostError as error:
            self._fault = str(error)
        finally:
            self.kill()
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await self._reap()
            self.over.set()
        await self._tell()

    async def lose(self) -> None:
        """Say that the containers are gone and nobody knows how, as after a loss of power."""
        self.over.set()
        for one in self._mains:
            one.state = _terminated(_KILLED, self._started_at, reason="ContainerStatusUnknown")
        await self._tell()

    async def end(self, grace_s: float) -> None:
        """Ask every container to end, and kill those that did not within the grace."""
        self._ending.set()
        running = [one for one in (*self._inits, *self._mains) if "running" in one.state]
        for one in running:
            one.ask()
        waits = [one.process.wait() for one in running if one.process is not None]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*waits), grace_s)
        self.kill()
        await self.over.wait()

    def kill(self) -> None:
        """Kill every process of the pod now."""
        self._ending.set()
        for one in (*self._inits, *self._mains):
            one.kill()

    def clean(self) -> None:
        """Remove what the pod had on disk, its logs included."""
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _reap(self) -> None:
        found = [one.process for one in (*self._inits, *self._mains) if one.process is not None]
        for process in found:
            await process.wait()

    async def _lay_out(self) -> None:
        """Make the volumes, as soon as everything that they are made of is there."""
        while not self._ending.is_set():
            try:
                return await self._contents.lay_out()
            except NotFound as error:
                waiting = {"waiting": {"reason": "ContainerCreating", "message": str(error)}}
                for one in (*self._inits, *self._mains):
                    one.state = waiting
                await self._tell()
            await self._pause(_MISSING_S)
        return None

    async def _pause(self, seconds: float) -> None:
        """Wait, but no longer than until the end."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), seconds)

    async def _initialise(self, beside: list[asyncio.Task[None]]) -> bool:
        """Run the init containers; whether the others may run."""
        for one in self._inits:
            if one.is_beside:
                begun = asyncio.Event()
                beside.append(asyncio.create_task(self._keep(one, "Always", begun)))
                await begun.wait()
                continue
            policy = "Never" if self._policy == "Never" else "OnFailure"
            await self._keep(one, policy)
            if one.exit_code != 0 or self._ending.is_set():
                return False
        return True

    async def _keep(self, one: Container, policy: str, begun: asyncio.Event | None = None) -> None:
        """Run a container, again and again if its policy says so."""
        wait_s = _BACK_OFF_S
        while not self._ending.is_set():
            await self._once(one, begun)
            again = policy == "Always" or (policy == "OnFailure" and one.exit_code != 0)
            if not again or self._ending.is_set():
                await self._tell()
                return
            ended = one.state
            one.last, one.state = ended, {"waiting": {"reason": "CrashLoopBackOff"}}
            await self._tell()
            await self._pause(wait_s)
            if self._ending.is_set():
                one.state, one.last = ended, {}
                return
            wait_s = min(2 * wait_s, _LONGEST_S)
            one.restarts += 1

    async def _once(self, one: Container, begun: asyncio.Event | None) -> None:
        """Run a container once; ``begun`` is set when it runs, or never will."""
        try:
            process = await self._started(one)
            if process is None:
                return
            one.process, began = process, timestamp()
            one.state = {"running": {"startedAt": began}}
            if self._ending.is_set():  # it came after the signals
                self.kill()
            await self._tell()
        finally:
            if begun is not None:
                begun.set()
        code = await process.wait()
        _kill_session(process.pid)
        one.state = _terminated(code if code >= 0 else 128 - code, began)
        if code and one.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            one.state["terminated"]["message"] = one.tail()

    async def _started(self, one: Container) -> asyncio.subprocess.Process | None:
        """The container's process, as soon as everything that it refers to is there."""
        while not self._ending.is_set():
            try:
                return await self._start(one)
            except NotFound as error:
                reason = "CreateContainerConfigError"
                one.state = {"waiting": {"reason": reason, "message": str(error)}}
                await self._tell()
            await self._pause(_MISSING_S)
        return None

    async def _start(self, one: Container) -> asyncio.subprocess.Process:
        variables = await self._contents.variables(one.spec)
        room = self._folder / "rooms" / one.name
        room.mkdir(exist_ok=True)
        given: dict[str, Any] = {
            "command": words(one.spec, variables),
            "env": {**self._surroundings(), **variables},
            "cwd": one.spec.get("workingDir") or str(self._folder / "work"),
            "root": str(room),
            "mounts": self._contents.mounts(one.spec),
        }
        path = self._folder / "rooms" / f"{one.name}.json"
        path.write_text(json.dumps(given), encoding="utf-8")
        with one.log.open("wb") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(_SANDBOX), str(path)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _surroundings(self) -> dict[str, str]:
        """What an image would give: this machine's programs, our Python first among them."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        home = str(self._folder / "work")
        name = str(self.pod["metadata"]["name"])
        return {"PATH": path, "HOME": home, "HOSTNAME": name, "LANG": "C.UTF-8"}

    async def _tell(self) -> None:
        async with self._turn:  # so that no older status overtakes a newer one
            await self._told(self.status())

    def status(self) -> Object:
        """The pod's status as a kubelet would write it."""
        phase = self._phase()
        runs = phase == "Running" and all("running" in one.state for one in self._mains)
        ready = runs and not self._ending.is_set()
        initialised = all(
            one.exit_code == 0 or (one.is_beside and one.process) for one in self._inits
        )
        found: Object = {
            "phase": phase,
            "startTime": self._started_at,
            "hostIP": ADDRESS,
            "podIP": ADDRESS,
            "podIPs": [{"ip": ADDRESS}],
            "conditions": [
                condition("Initialized", holds=initialised),
                condition("Ready", holds=ready),
                condition("ContainersReady", holds=ready),
            ],
            "initContainerStatuses": [one.status() for one in self._inits],
            "containerStatuses": [one.status() for one in self._mains],
        }
        if self._fault:
            found |= {"reason": "FailedToStart", "message": self._fault}
        return found

    def _phase(self) -> str:
        if self._fault:
            return "Failed"
        codes = [one.exit_code for one in self._mains]
        failed = any(one.exit_code for one in self._inits if not one.is_beside)
        if failed and self._policy == "Never":
            return "Failed"
        if all(code is not None for code in codes) and not self.pids:
            return "Failed" if any(codes) else "Succeeded"
        if any(code is not None for code in codes) or any(one.process for one in self._mains):
            return "Failed" if self._ending.is_set() and not self.pids else "Running"
        return "Failed" if self._ending.is_set() else "Pending"


def _kill_session(number: int) -> None:
    """Kill every process of a session, whatever group it is in, until there is none."""
    for _ in range(_ROUNDS):
        found = [
            process_tree.look(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()
        ]
        left = [one for one in found if one and one.session == number and one.state not in "ZX"]
        if not left:
            return
        for one in left:
            process_tree.send(one, signal.SIGKILL)


def _terminated(code: int, began: str, *, reason: str = "") -> Object:
    reason = reason or ("Error" if code else "Completed")
    ended = {"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": timestamp()}
    return {"terminated": ended}
