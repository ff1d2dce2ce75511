"""The workers of a run, put into containers: what the shim is told instead of their commands."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roost.engines.local import accounts, containers
from roost.engines.local.accounts import Account
from roost.engines.local.containers import ContainerMount, ContainerRuntime, ContainerSettings
from roost.engines.local.devices import Machine
from roost.engines.local.environment import GenerationEnvironment
from roost.engines.local.run_folders import RunFolder
from roost.engines.mounts import HostMount
from roost.errors import InvalidSpec
from roost.jobfile.program import Program


@dataclass(frozen=True, slots=True)
class ContainerWorkers:
    """Wraps the workers of one generation; ``cwd`` is the folder that they run in."""

    runtime: ContainerRuntime
    machine: Machine
    program: Program
    cwd: str
    mounts: tuple[HostMount, ...] = ()

    def preparations(self, env: Mapping[str, str], token: str) -> list[dict[str, Any]]:
        """What comes before the workers: the folder of checkpoints, and the image."""
        found = []
        if self.program.checkpoint_dir:  # with the rights of the job
            make = ["/bin/mkdir", "-p", self.program.checkpoint_dir]
            found.append({**preparation("make", "make", make), "env": dict(env), "cwd": "/"})
        if pull := self.runtime.pull(self.program.image):
            own = {**containers.own_environment(), "ROOST_RUN_TOKEN": token}
            step = preparation("pull", f"the pull of {self.program.image}", pull)
            found.append({**step, "env": own, "cwd": "/", "as_server": True})
        return found

    def workers(
        self, folder: RunFolder, setting: GenerationEnvironment, workers: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """The same workers, in containers; raises InvalidSpec where that cannot be."""
        if self.runtime.problem:
            raise InvalidSpec(self.runtime.problem)
        mounts = self._mounts(folder, setting)
        return [
            self._contained(worker, seat.gpus, setting, mounts)
            for worker, seat in zip(workers, setting.record.seats, strict=True)
        ]

    def _contained(
        self,
        worker: dict[str, Any],
        gpus: tuple[int, ...],
        setting: GenerationEnvironment,
        mounts: tuple[ContainerMount, ...],
    ) -> dict[str, Any]:
        runtime, task = self.runtime, self.program.tasks[worker["role"]]
        held = gpus if self.machine.real else ()
        what = ContainerSettings(
            self.program.image,
            setting.record.token,
            self.cwd,
            mounts,
            setting.account,
            worker["data_bytes"],
            setting.record.needs[worker["role"]],
            tuple(worker["cpus"] or ()),
        )
        counted = len(held) if runtime.as_server else 0
        env = containers.variables(worker["env"], setting.own, self.cwd, counted)
        command = containers.command(task.script, task.command, self.program.setup)
        argv, own, lines = runtime.run(what, command, env, held)
        changed: dict[str, Any] = {"argv": argv, "env": own, "env_file": lines, "make": []}
        if runtime.as_server:  # its limit of memory would be the runtime's own
            changed |= {"cwd": "/", "as_server": True, "data_bytes": 0}
        return {**worker, **changed}

    def _mounts(
        self, folder: RunFolder, setting: GenerationEnvironment
    ) -> tuple[ContainerMount, ...]:
        paths = [folder.path / "work", folder.path / "io", folder.path / "hostfile"]
        paths += [setting.paths["ROOST_CHECKPOINT_DIR"]]
        paths += [path for name, path in setting.paths.items() if name == "ROOST_PAYLOAD"]
        if self.program.workdir:
            paths.append(Path(self.program.workdir))
        for own in filter(None, (self.program.workdir, self.program.checkpoint_dir)):
            _check(own, setting.account)
        found = {str(path): ContainerMount(str(path), str(path)) for path in paths}
        # No runtime mounts two folders at one place; what an administrator said of it holds.
        found |= {one.path: ContainerMount(one.path, one.path, one.readonly) for one in self.mounts}
        return tuple(found.values())


def preparation(name: str, title: str, argv: list[str]) -> dict[str, Any]:
    """A step before the workers, as the shim is told of it."""
    return {
        "name": f"{name}-0",
        "title": title,
        "role": "setup",
        "index": 0,
        "main": True,
        "argv": argv,
    }


def _check(path: str, account: Account | None) -> None:
    """Refuse a folder that the account cannot reach: a runtime of root's could mount it."""
    if "," in path:
        raise InvalidSpec(f"{path!r}: a folder with a comma cannot be mounted into a container")
    found = Path(os.path.realpath(path))
    while not found.exists() and found != found.parent:
        found = found.parent
    if account:
        accounts.check_reach(account, found)
