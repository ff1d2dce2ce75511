"""The output of pods as files: what the API server tells of a log is kept in a folder of our own.

A server reads logs by offset, again and again; Kubernetes tells a log from its beginning. So each
log that is asked for is followed once, into a file, for as long as the gateway runs. Of a pod that
is gone the file is what was copied so far, else what the operator kept (``objects.kept_logs``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

from roost.core import JobId, RunId
from roost.engines import JobFiles, LogFile
from roost.errors import Conflict, Forbidden, NotFound, RoostError
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import CONFIG_MAPS, PODS, Object
from roost.kubernetes.objects.kept_logs import LogEnd, decode_logs, kept_name
from roost.kubernetes.objects.pods import is_over

T = TypeVar("T")

#: How long an answer of the API server may take, seen from a thread that waits for it.
_PATIENCE_S = 30.0
_AGAIN_S = 1.0
_LOOK_S = 0.01
#: How long the end of a log may be on its way after the end of its job.
_END_S = 5.0
#: The first line of a log that is not whole.
_TAIL = b"[roost: the pod is gone; this is the end of its log]\n"

#: The pods of a run, by the name of their worker.
Pods = Callable[[RunId], Mapping[str, Object]]
#: The uid of the object of a Job; empty if there is none.
UidOf = Callable[[JobId], str]


class _File:
    """A log as it was copied so far; the copying goes on."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def size(self) -> int:
        """Bytes there are by now."""
        return os.fstat(self._file).st_size

    def read(self, offset: int, n: int) -> bytes:
        """At most so many bytes from there."""
        return os.pread(self._file, n, offset)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PodOutputs:
    """Finds and copies the logs of pods; ``logs`` and ``workers`` are called from threads."""

    def __init__(self, api: Api, pods: Pods, uid_of: UidOf, folder: Path) -> None:
        self._api, self._pods, self._uid_of, self._folder = api, pods, uid_of, folder
        self._loop = asyncio.get_running_loop()
        self._copies: dict[str, tuple[Path, asyncio.Task[None]]] = {}
        #: The pod whose log was copied last, by worker.
        self._copied_of: dict[tuple[RunId, str], str] = {}
        self._tasks: dict[JobId, set[asyncio.Task[None]]] = {}

    def workers(self, run: RunId) -> tuple[str, ...]:
        """The workers of a run that have pods or a log that was kept, main ones first."""
        pods = self._pods(run)
        if any(not is_over(pod) for pod in pods.values()):
            return tuple(pods)
        # Some pods of a run that ended may be gone, and others not.
        return tuple(dict.fromkeys((*pods, *self._wait(self._kept(run)))))

    def logs(self, run: RunId, worker: str = "worker-0") -> LogFile:
        """The output of a worker, with all that it wrote until now."""
        return _File(self._wait(self._copied(run, worker)))

    def result(self, run: RunId) -> LogFile | None:  # noqa: ARG002 - of no run
        """Functions are not submitted to Kubernetes: there is none."""
        return None

    def files(self, run: RunId, own: Mapping[str, str]) -> JobFiles:
        """What a pod writes goes with it, unless it is on a volume: there are none here."""
        del own
        raise Conflict(
            f"the files of {_named(run.job)} are in its pods, or on its volumes: "
            "kubectl cp has those of a pod that runs"
        )

    async def complete(self, job: JobId) -> None:
        """Wait until all that a job wrote is here: a reader stops when it hears of its end."""
        if tasks := self._tasks.pop(job, None):
            await asyncio.wait(tasks, timeout=_END_S)

    async def close(self) -> None:
        """Stop copying."""
        for _, task in self._copies.values():
            task.cancel()
        for _, task in self._copies.values():
            with contextlib.suppress(asyncio.CancelledError, RoostError):
                await task

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    async def _copied(self, run: RunId, worker: str) -> Path:
        """The file that a log is copied to, once it has all that was written when it was asked."""
        pod = self._pods(run).get(worker)
        if pod is None:
            return await self._left_of(run, worker)
        meta = pod["metadata"]
        self._copied_of[run, worker] = meta["uid"]
        if meta["uid"] not in self._copies:
            path = self._folder / meta["uid"]
            path.touch(0o600)
            task = asyncio.create_task(self._copy(pod, path))
            self._copies[meta["uid"]] = path, task
            self._tasks.setdefault(run.job, set()).add(task)
        path, task = self._copies[meta["uid"]]
        there = len(await self._written(pod))
        while path.stat().st_size < there and not task.done():  # noqa: ASYNC110 - a file grows
            await asyncio.sleep(_LOOK_S)
        return path

    async def _left_of(self, run: RunId, worker: str) -> Path:
        """A file with what there is of the log of a worker without a pod."""
        copied = self._copied_of.get((run, worker))
        if copied is not None and (path := self._copies[copied][0]).stat().st_size:
            return path
        log = (await self._kept(run)).get(worker)
        if log is None:
            raise NotFound(f"the pod of {worker} of {_named(run.job)} is gone, and its log with it")
        path = self._folder / quote(f"{run.job}.{run.attempt}.{worker}", safe="")
        path.write_bytes((b"" if log.is_whole else _TAIL) + log.text)
        return path

    async def _kept(self, run: RunId) -> dict[str, LogEnd]:
        """The logs of a run that the operator kept, by worker."""
        namespace, _, job = run.job.partition(".")
        uid = self._uid_of(run.job)
        if not uid:
            return {}
        try:
            found = await self._api.get(CONFIG_MAPS, kept_name(job, run.attempt), namespace)
        except (NotFound, Forbidden):
            return {}
        # One that an earlier Job of the same name left is not about this one.
        owners = found["metadata"].get("ownerReferences") or ()
        return decode_logs(found) if any(one.get("uid") == uid for one in owners) else {}

    async def _written(self, pod: Object) -> bytes:
        """What the log has now; nothing where the container has not begun."""
        meta = pod["metadata"]
        try:
            return await self._api.log(meta["namespace"], meta["name"], container=_container(pod))
        except RoostError:
            return b""

    async def _copy(self, pod: Object, path: Path) -> None:
        """Follow a log into a file until its container has ended."""
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        with path.open("ab", buffering=0) as file:
            while True:
                try:
                    follow = self._api.follow(
                        namespace, name, container=_container(pod), since_bytes=file.tell()
                    )
                    async for piece in follow:
                        file.write(piece)
                except NotFound:
                    # Its kubelet says the same of a pod that it has not heard of yet.
                    if await self._is_gone(pod):
                        return
                except RoostError:
                    pass  # not begun yet, or a connection that broke
                else:
                    return
                await asyncio.sleep(_AGAIN_S)

    async def _is_gone(self, pod: Object) -> bool:
        """Whether a pod is no more."""
        meta = pod["metadata"]
        try:
            found = await self._api.get(PODS, meta["name"], meta["namespace"])
        except NotFound:
            return True
        except RoostError:
            return False
        return bool(found["metadata"]["uid"] != meta["uid"])


def _container(pod: Object) -> str:
    """The container that does the work: of a Job's pod "worker", of others' the first."""
    names = [str(one["name"]) for one in pod["spec"]["containers"]]
    return "worker" if "worker" in names else names[0]


def _named(job: JobId) -> str:
    return job.partition(".")[2] or job
