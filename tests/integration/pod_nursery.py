"""Plays the part of the operator and of kubelets: pods are processes, each with its own address.

async with Nursery(tmp_path, [sys.executable, "script.py"]) as nursery:
    await nursery.begin(2)
    await nursery.resize(3)
    await nursery.away(3.0)
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from roost.core.spec import JobId, RunId
from roost.engines.local.shim import process_tree
from roost.kubernetes.jobs.blueprint import digest_of
from roost.kubernetes.jobs.pod_membership import (
    ChangeDone,
    CreatePod,
    DeletePod,
    MemberEffect,
    PodMembership,
    PublishView,
    StopPods,
)
from roost.kubernetes.jobs.rendezvous import RendezvousServer

RUN = RunId(JobId("default.training"), 1)
_TOKEN = "only for pods of this run"  # noqa: S105 - of nobody
_FOREIGN = ("ROOST_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_")


def address(member: str) -> str:
    """Each pod has one, as in a cluster: all of 127.0.0.0/8 is here."""
    return f"127.0.1.{int(member) + 1}"


def kill(process: Process) -> None:
    """Kill a pod with all that is in it, as happens when the first process of a container ends."""
    for name in (path.name for path in Path("/proc").iterdir()):
        if name.isdecimal() and (one := process_tree.look(name)) and one.session == process.pid:
            process_tree.send(one, signal.SIGKILL)


class Nursery:
    """One elastic run."""

    def __init__(self, folder: Path, command: Sequence[str], **environ: object) -> None:
        self.folder, self.command = folder, list(command)
        self.environ = {name: str(value) for name, value in environ.items()}
        self.checkpoints = folder / "checkpoints"
        self.checkpoints.mkdir(parents=True)
        self.pods: dict[str, Process] = {}
        self.heard: list[dict[str, Any]] = []
        self.effects: list[MemberEffect] = []
        self.statuses: dict[str, int] = {}
        self._news = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._number = 0
        self._saved = ""
        self._port = 0
        self.meeting = RendezvousServer(self._on_line, self._on_poll)
        self.members = PodMembership([], 1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self.story())
        for process in self.pods.values():
            kill(process)
        await asyncio.gather(*self._tasks)
        await self.meeting.stop()

    # What the operator does.

    async def begin(self, count: int) -> None:
        """Make the first pods, and wait until they train and can change."""
        await self.meeting.start("127.0.0.1")
        self._port = self.meeting.port
        self.members = PodMembership([str(number) for number in range(count)], 1, grace_s=10.0)
        self._saved = self.members.saved()
        self.meeting.open(RUN, digest_of(_TOKEN))
        for member in self.members.members:
            await self._create(member)
        await self.until(lambda: self.members.elastic)

    def want(self, count: int) -> int:
        """Ask for so many members; the first ones stay."""
        self._number += 1
        stay = self.members.members[:count]
        new = [""] * (count - len(stay))
        seats = [{"member": member} for member in (*stay, *new)]
        self.perform(self.members.want(time.time(), self._number, seats))
        return self._number

    def leave(self, member: str) -> None:
        """Let the others go on without a member."""
        self._number += 1
        seats = [{"member": one} for one in self.members.members if one != member]
        self.perform(self.members.want(time.time(), self._number, seats))

    async def resize(self, count: int) -> ChangeDone:
        """Ask for so many members, and wait until it is so."""
        return await self.changed(self.want(count))

    async def changed(self, number: int) -> ChangeDone:
        """Until a wish has come true."""

        def found() -> list[ChangeDone]:
            return [
                one for one in self.effects if isinstance(one, ChangeDone) and one.number == number
            ]

        await self.until(lambda: bool(found()))
        return found()[0]

    async def away(self, seconds: float, then: Callable[[], None] = lambda: None) -> None:
        """Be killed, and start again after a while, with nothing but what was saved."""
        await self.meeting.stop()
        kept, self._saved = self._saved, ""
        await asyncio.sleep(seconds)
        then()
        self.meeting = RendezvousServer(self._on_line, self._on_poll)
        self.members = PodMembership.restored(kept, self.pods)
        await self.meeting.start("127.0.0.1", self._port)
        self.meeting.open(RUN, digest_of(_TOKEN))
        self.perform(self.members.tick(time.time()))
        for member, status in self.statuses.items():
            self._ended(member, status)

    def perform(self, effects: list[MemberEffect]) -> None:
        """Write down how it is, then do what is wanted."""
        self._saved = self.members.saved()
        self.effects += effects
        for effect in effects:
            match effect:
                case PublishView(view):
                    self.meeting.publish(RUN, view)
                case CreatePod(member):
                    self._later(self._create(member))
                case DeletePod(member):
                    kill(self.pods[member])
                case StopPods():
                    for process in self.pods.values():
                        if process.returncode is None:
                            process.terminate()
                case _:
                    pass
        self._later(self._notify())

    # What can be seen of it.

    async def until(self, seen: Callable[[], bool], timeout_s: float = 60.0) -> None:
        async with asyncio.timeout(timeout_s), self._news:
            await self._news.wait_for(seen)

    def steps(self) -> list[int]:
        """The steps that were reported, in the order of the reports."""
        return [line["step"] for line in self.heard if "step" in line]

    async def trains_on(self, steps: int = 20) -> int:
        """Until it is some steps further than now; the step."""
        known = len(self.steps())
        await self.until(lambda: len(self.steps()) > known)
        now = self.steps()[-1]
        await self.until(lambda: self.steps()[-1] >= now + steps)
        return self.steps()[-1]

    async def ended(self) -> dict[str, int]:
        """The exit codes of all pods, once they have ended."""
        await self.until(lambda: self.statuses.keys() >= self.pods.keys())
        return self.statuses

    def signal(self, number: signal.Signals, *members: str) -> None:
        for member in members:
            self.pods[member].send_signal(number)

    def output(self, member: str) -> str:
        return (self.folder / f"pod-{member}.log").read_text(errors="replace")

    def story(self) -> str:
        lines = [f"heard: {line}" for line in self.heard[-20:]]
        lines += [f"effect: {effect}" for effect in self.effects[-20:]]
        for member, process in self.pods.items():
            lines += [f"--- pod {member}, status {process.returncode}", self.output(member)[-3000:]]
        return "\n".join(lines)

    async def _create(self, member: str) -> None:
        if member in self.pods:
            return
        environ = {name: text for name, text in os.environ.items() if not name.startswith(_FOREIGN)}
        environ |= {
            "ROOST_MEETING": f"http://127.0.0.1:{self._port}",
            "ROOST_JOB": RUN.job,
            "ROOST_ATTEMPT": str(RUN.attempt),
            "ROOST_MEMBER": member,
            "ROOST_RUN_TOKEN": _TOKEN,
            "ROOST_MEMBERS": str(self.folder / f"pod-{member}" / "members.json"),
            "ROOST_PROGRESS": str(self.folder / f"pod-{member}" / "progress"),
            "ROOST_CHECKPOINT_DIR": str(self.checkpoints),
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
            **self.environ,
        }
        wrapped = [sys.executable, "-m", "roost.train.pod", "--", *self.command]
        with (self.folder / f"pod-{member}.log").open("wb") as log:
            self.pods[member] = await asyncio.create_subprocess_exec(
                *wrapped,
                env=environ,
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._later(self._watch(member))

    async def _watch(self, member: str) -> None:
        self.statuses[member] = await self.pods[member].wait()
        if self._saved:
            self._ended(member, self.statuses[member])
        await self._notify()

    def _ended(self, member: str, status: int) -> None:
        how = f"worker {member} ended with {status}"
        self.perform(self.members.ended(time.time(), member, status, how))

    def _on_line(self, run: RunId, member: str, line: dict[str, Any]) -> None:
        assert run == RUN
        self.heard.append({"from": member, **line})
        self.perform(self.members.hear(time.time(), line))

    def _on_poll(self, run: RunId, member: str, version: int) -> None:
        hosts = {one: address(one) for one in self.pods}
        self.perform(self.members.where(time.time(), self.meeting.places(run, hosts)))
        self.perform(self.members.saw(time.time(), version))
        assert member in hosts

    def _later(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _notify(self) -> None:
        async with self._news:
            self._news.notify_all()
