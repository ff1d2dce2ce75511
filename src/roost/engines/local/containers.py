"""Workers in containers: which program of this machine runs them, and with which arguments.

The container is an ordinary worker to the shim: a command in the worker's cgroup, with its cores
and limits, whose end is that of the container. Podman's own processes descend from it, so signals,
freezing and the end work as for any other worker; of Docker the daemon is the parent, so its
containers cannot be frozen, and are removed by their label. The network is the machine's: gangs
meet as processes do. The job's folders have the same paths inside.

As root, Podman and Docker are called by the server and the program inside has the job's account, no
capabilities and no way to get any. Their own environment is the server's: what a job sets reaches
the container alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from roost.core.spec import WHOLE, Resources
from roost.engines.local.accounts import Account
from roost.errors import InvalidSpec

RuntimeName = Literal["podman", "docker", "apptainer"]

#: Where a container finds its variables: a file of memory that the shim opens for it.
ENV_FD = 3
ENV_FILE = f"/proc/self/fd/{ENV_FD}"
_LABEL = "roost.run"
#: How long a runtime may take to say that it works, and to remove containers, in seconds.
_ANSWER_S, _REMOVE_S = 10.0, 60.0
_REMOVALS = 3
_PROGRAMS: tuple[tuple[str, RuntimeName], ...] = (
    ("podman", "podman"),
    ("docker", "docker"),
    ("apptainer", "apptainer"),
    ("singularity", "apptainer"),
)
#: What a runtime needs of the server's environment.
_OF_SERVER = ("PATH", "HOME", "XDG_RUNTIME_DIR", "TMPDIR")
_SETTINGS = ("CONTAINERS_", "STORAGE_", "REGISTRY_", "DOCKER_", "APPTAINER_", "SINGULARITY_")
_CDI = (Path("/etc/cdi"), Path("/var/run/cdi"))
_PROCESSES = 32768
_INIT = Path("/usr/libexec/podman/catatonit")
_INSTALL = "install podman (with crun), docker or apptainer on the server's machine"
#: A script in whatever shell an image has.
_SHELL = 'if [ -x /bin/bash ]; then exec /bin/bash -eo pipefail -c "$0"; fi; exec /bin/sh -ec "$0"'
_SETUP_FIRST = '{setup}\nexec "$@"'
_PULL = {
    "podman": '"$0" image exists "$1" || exec "$0" pull "$1"',
    "docker": '"$0" image inspect "$1" >/dev/null 2>&1 || exec "$0" pull "$1"',
}
_NOTHING = Resources()


@dataclass(frozen=True, slots=True)
class ContainerMount:
    """A folder of this machine, and where it is inside."""

    source: str
    target: str
    readonly: bool = False


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """What all containers of a run have in common."""

    image: str
    token: str
    cwd: str
    mounts: tuple[ContainerMount, ...] = ()
    account: Account | None = None
    data_bytes: int = 0
    #: What Docker is told, whose containers are in none of our cgroups: memory and CPUs.
    need: Resources = _NOTHING
    cores: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerRuntime:
    """A program that runs containers here; ``problem`` says why there is none."""

    name: RuntimeName = "podman"
    path: str = ""
    problem: str = f"no container can run here: {_INSTALL}"

    @property
    def is_ours(self) -> bool:
        """Whether its containers are processes below the one that asked for them."""
        return self.name != "docker"

    @property
    def as_server(self) -> bool:
        """Whether the server's account calls it, and the container has that of the job."""
        return self.name != "apptainer"

    def pull(self, image: str) -> list[str]:
        """The command that fetches an image that is not there yet; empty: none is needed."""
        script = _PULL.get(self.name)
        return ["/bin/sh", "-c", script, self.path, image] if script else []

    def run(
        self,
        what: ContainerSettings,
        argv: list[str],
        env: Mapping[str, str],
        gpus: tuple[int, ...],
    ) -> tuple[list[str], dict[str, str], str]:
        """A command that runs another in a container, its own environment, and that of the other.

        The last is the text of a file; empty where the first has it.
        """
        if self.name == "apptainer":
            inside = {f"APPTAINERENV_{name}": text for name, text in env.items() if name != "HOME"}
            words = self._apptainer(what, env.get("HOME", what.cwd), gpus)
            return [*words, *argv], {**own_environment(), **inside}, ""
        if odd := [name for name, text in env.items() if "\n" in text]:
            raise InvalidSpec(f"env: {odd[0]} has several lines, which no container can be given")
        lines = "".join(f"{name}={text}\n" for name, text in env.items())
        own = {**own_environment(), "ROOST_RUN_TOKEN": what.token}
        return [*self._engine(what, gpus), what.image, *argv], own, lines

    def remove(self, token: str) -> None:
        """Remove all that is left of the containers of a run."""
        if self.name == "apptainer" or not self.path:
            return
        # Where the container died without its keeper, Podman notices that first and fails.
        for _ in range(_REMOVALS):
            with suppress(OSError, subprocess.SubprocessError):
                found = _told([self.path, "ps", "-aq", "--filter", f"label={_LABEL}={token}"])
                if not found.split():
                    return
                _told([self.path, "rm", "-f", *found.split()])

    def _engine(self, what: ContainerSettings, gpus: tuple[int, ...]) -> list[str]:
        uid, gid = (what.account.uid, what.account.gid) if what.account else (_uid(), os.getegid())
        words = [self.path, "run", "--rm", "--pull=never", "--network=host", "--ipc=host"]
        words += [f"--label={_LABEL}={what.token}", f"--env-file={ENV_FILE}"]
        words += [f"--workdir={what.cwd}", f"--user={uid}:{gid}"]
        words += ["--cap-drop=all", "--security-opt=no-new-privileges", "--entrypoint="]
        words += [f"--group-add={group}" for group in (what.account.groups if what.account else ())]
        for mount in what.mounts:
            text = f"type=bind,source={mount.source},target={mount.target}"
            words.append(f"--mount={text}{',readonly' if mount.readonly else ''}")
        return words + (self._podman(what, gpus) if self.name == "podman" else _docker(what, gpus))

    def _podman(self, what: ContainerSettings, gpus: tuple[int, ...]) -> list[str]:
        # In the cgroup that it is started in, with the limits that hold there: as any process.
        words = ["--cgroups=disabled", *_ulimits(what)]
        if _uid():
            words.append("--userns=keep-id")
        if _INIT.exists() or shutil.which("catatonit"):
            words.append("--init")  # a first process that heeds signals and reaps
        return words + [f"--device=nvidia.com/gpu={gpu}" for gpu in gpus]

    def _apptainer(self, what: ContainerSettings, home: str, gpus: tuple[int, ...]) -> list[str]:
        words = [self.path, "exec", "--cleanenv", "--no-privs", f"--pwd={what.cwd}"]
        # It takes HOME in no other way, and would mount that of the account and the folder that it
        # is called in.
        words += ["--no-mount=home,cwd", f"--home={home}", "--no-home"]
        words += ["--nv"] if gpus else []
        for mount in what.mounts:
            words.append(f"--bind={mount.source}:{mount.target}:{'ro' if mount.readonly else 'rw'}")
        return [*words, _for_apptainer(what.image)]


def find() -> ContainerRuntime:
    """The first runtime of this machine that works."""
    problems = []
    for program, name in _PROGRAMS:
        path = shutil.which(program)
        if path is None:
            continue
        try:
            _told([path, "info"] if name != "apptainer" else [path, "--version"], _ANSWER_S)
        except (OSError, subprocess.SubprocessError):
            problems.append(f"{program} is there and does not work (try: {program} info)")
            continue
        return ContainerRuntime(name, path, "")
    told = "; ".join(problems)
    return ContainerRuntime(problem=f"no container can run here: {told or _INSTALL}")


def named(name: str) -> ContainerRuntime:
    """The runtime of that name, whether it works or not."""
    for program, runtime in _PROGRAMS:
        if runtime == name:
            return ContainerRuntime(runtime, shutil.which(program) or "", "")
    return ContainerRuntime()


def refusal(runtime: ContainerRuntime, needs: Iterable[Resources], *, real: bool) -> str:
    """Why a job with an image cannot run here; "" if it can. ``real``: there are GPUs."""
    if runtime.problem:
        return f"image: {runtime.problem}"
    for need in needs:
        if real and need.gpu_milli and need.share_milli < WHOLE:
            return "image: a part of a GPU cannot be held in a container; ask for whole GPUs"
        if real and need.gpu_milli and not has_gpus(runtime):
            return (
                "image: podman cannot pass on GPUs here; describe them with: "
                "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
            )
    return ""


def command(script: str, argv: tuple[str, ...], setup: str) -> list[str]:
    """What a container runs: a script or a command, after the job's setup."""
    if script:
        whole = f"{setup}\n{script}" if setup else script
        return ["/bin/sh", "-c", _SHELL, whole]
    if not setup:
        return list(argv)
    return ["/bin/sh", "-ec", _SETUP_FIRST.format(setup=setup), "sh", *argv]


def variables(
    env: Mapping[str, str], own: Mapping[str, str], home: str, gpus: int
) -> dict[str, str]:
    """The variables of a worker inside: where programs are is the image's to say."""
    found = {name: text for name, text in env.items() if name != "PATH" or name in own}
    found["HOME"] = own.get("HOME", home)
    if gpus:  # only those that it holds are there, and they are counted anew
        found["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(gpus)))
    return found


def own_environment() -> dict[str, str]:
    """What a runtime itself sees: nothing that a job could set."""
    return {
        name: text
        for name, text in os.environ.items()
        if name in _OF_SERVER or name.startswith(_SETTINGS)
    }


def has_gpus(runtime: ContainerRuntime) -> bool:
    """Whether GPUs can be passed on: Podman needs a description of them (CDI)."""
    return runtime.name != "podman" or any(
        any(folder.glob("*nvidia*")) for folder in _CDI if folder.is_dir()
    )


def _for_apptainer(image: str) -> str:
    """An image as Apptainer has it: a file or a folder of this machine, or where to fetch it."""
    here = image.startswith(("/", "./", "../")) or image.endswith(".sif")
    return image if here or "://" in image else f"docker://{image}"


def _docker(what: ContainerSettings, gpus: tuple[int, ...]) -> list[str]:
    words = ["--init", f"--pids-limit={_PROCESSES}"]
    if what.need.memory_mib:  # and no swap: it would make what is beyond merely slow
        words += [f"--memory={what.need.memory_mib}m", f"--memory-swap={what.need.memory_mib}m"]
    if what.need.cpu_milli:
        words.append(f"--cpus={what.need.cpu_milli / 1000:g}")
    if what.cores:
        words.append(f"--cpuset-cpus={','.join(map(str, what.cores))}")
    return words + ([f'--gpus="device={",".join(map(str, gpus))}"'] if gpus else [])


def _ulimits(what: ContainerSettings) -> list[str]:
    """The limits that this process has: Podman would raise some, which it may not always."""
    import resource  # noqa: PLC0415 - on no other system

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    count = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    # Podman lowers its own limit of processes to this before it starts a container.
    count = _PROCESSES if count == resource.RLIM_INFINITY else min(count, _PROCESSES)
    found = [f"--ulimit=nofile={files}:{files}", f"--ulimit=nproc={count}:{count}"]
    if what.data_bytes:
        found.append(f"--ulimit=data={what.data_bytes}:{what.data_bytes}")
    return found


def _uid() -> int:
    return os.geteuid()


def _told(argv: list[str], within_s: float = _REMOVE_S) -> str:
    done: subprocess.CompletedProcess[Any] = subprocess.run(  # noqa: S603 - found by its name
        argv, capture_output=True, text=True, timeout=within_s, check=True, env=own_environment()
    )
    return str(done.stdout)
