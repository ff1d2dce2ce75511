"""Keeps what the workers of a run printed last, after their pods are gone.

A pod takes its log with it. So before pods are asked to leave somebody listens to them, and hears
their last words, too; the logs of pods that ended by themselves are read. When none is left, all of
it goes into a ConfigMap (``objects.kept_logs``). This is a courtesy, nothing waits for it for long
and nothing depends on it: what is not to be had is left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from typing import ClassVar

from roost.errors import NotFound, Retryable, RoostError
from roost.kubernetes.client.kinds import CONFIG_MAPS, JOBS, Object
from roost.kubernetes.client.lease import Deposed
from roost.kubernetes.jobs.blueprint import CONTAINER, Blueprint
from roost.kubernetes.jobs.pod_ends import LOG_LINES, read_log, worker_of
from roost.kubernetes.jobs.pods import ensure, pause
from roost.kubernetes.objects.kept_logs import (
    MOST_ATTEMPTS,
    MOST_BYTES,
    MOST_WORKERS,
    LogEnd,
    encode_logs,
    kept_name,
)
from roost.kubernetes.objects.pods import is_over, node_of
from roost.kubernetes.operator.workload import OperatorContext

_log = logging.getLogger(__name__)

#: How long pods stay for being listened to, and how long their last words may take after they are
#: gone, in seconds. A pod that prints nothing cannot be told from one whose kubelet is slow.
OPEN_S, _END_S = 0.5, 5.0
_TRIES = 3
#: Logs of all runs that are listened to at a time: each is a connection.
_MOST_STREAMS = 256


class LogKeeper:
    """The last words of one generation of pods."""

    #: Of all keepers together.
    _streams: ClassVar[int] = 0

    def __init__(self, context: OperatorContext, plan: Blueprint) -> None:
        self._context, self._plan = context, plan
        self._listening: dict[str, asyncio.Task[None] | None] = {}
        self._heard: dict[str, bytearray] = {}
        self._cut: set[str] = set()

    async def listen(self, pods: Iterable[Object]) -> None:
        """Listen to pods that are about to leave; it returns when they are heard, or soon."""
        opened: list[asyncio.Task[bool]] = []
        for pod in pods:
            node, name = node_of(pod), pod["metadata"]["name"]
            if name in self._listening or not node or self._context.is_node_gone(node):
                continue
            if len(self._listening) >= MOST_WORKERS or LogKeeper._streams >= _MOST_STREAMS:
                break
            is_open = asyncio.Event()
            work = self._follow(pod, is_open)
            self._listening[name] = self._context.spawn(work, f"the last words of {name}")
            opened.append(asyncio.ensure_future(is_open.wait()))
        if opened:
            _, late = await asyncio.wait(opened, timeout=OPEN_S)
            for task in late:
                task.cancel()

    def stop(self) -> None:
        """Listen no more: the pods stay."""
        for task in self._listening.values():
            if task is not None:
                task.cancel()
        self._listening.clear()
        self._heard.clear()

    async def keep(self, pods: Iterable[Object], known: Mapping[str, LogEnd]) -> None:
        """Write down what was heard, what is ``known`` already and what ended pods have."""
        if tasks := [task for task in self._listening.values() if task is not None]:
            _, late = await asyncio.wait(tasks, timeout=_END_S)
            for task in late:
                task.cancel()
        heard = {worker: self._log_of(worker) for worker in self._heard}
        # Those that ended first come first: they may say why the others had to.
        logs = {**known, **{worker: log for worker, log in heard.items() if log.text}}
        rest = [pod for pod in pods if is_over(pod) and worker_of(pod) not in logs]
        for pod in rest[: max(0, MOST_WORKERS - len(logs))]:
            if (log := await read_log(self._context, pod)) is not None:
                logs[worker_of(pod)] = log
        await self._write({worker: log for worker, log in logs.items() if log.text})

    async def _follow(self, pod: Object, is_open: asyncio.Event) -> None:
        meta, worker = pod["metadata"], worker_of(pod)
        heard = self._heard[worker] = bytearray()
        LogKeeper._streams += 1
        try:
            async for piece in self._context.api.follow(
                meta["namespace"], meta["name"], container=CONTAINER, tail_lines=LOG_LINES
            ):
                is_open.set()
                heard += piece
                if heard.count(b"\n") >= LOG_LINES or len(heard) > 2 * MOST_BYTES:
                    self._cut.add(worker)
                    del heard[: max(0, len(heard) - 2 * MOST_BYTES)]
        except RoostError as error:
            _log.debug("the log of %s is not to be had: %s", meta["name"], error)
        finally:
            LogKeeper._streams -= 1
            is_open.set()

    def _log_of(self, worker: str) -> LogEnd:
        return LogEnd(bytes(self._heard[worker]), worker not in self._cut).bounded()

    async def _write(self, logs: Mapping[str, LogEnd]) -> None:
        for tried in range(_TRIES):
            if not self._is_wanted():
                return
            try:
                if logs:
                    await self._store(logs)
                await self._forget()
            except Retryable as error:
                await pause(error, tried)
            except Deposed:
                raise
            except RoostError as error:
                _log.info("the log of %s is not kept: %s", self._plan.run, error)
                return
            else:
                return

    def _is_wanted(self) -> bool:
        """Whether its Job is there, and stays."""
        owner = self._plan.owner
        found = self._context.objects(JOBS).get((owner.namespace, owner.name))
        if found is None or found["metadata"]["uid"] != owner.uid:
            return False
        return not found["metadata"].get("deletionTimestamp")

    async def _store(self, logs: Mapping[str, LogEnd]) -> None:
        plan, owner, api = self._plan, self._plan.owner, self._context.api
        name, data = kept_name(owner.name, plan.run.attempt), encode_logs(logs)
        body = plan.kept_log(name, data)
        found = await ensure(self._context, owner, CONFIG_MAPS, body)
        before: Mapping[str, str] = found.get("binaryData") or {}
        if before != data:  # of an earlier generation of the same attempt
            change = {"binaryData": {**dict.fromkeys(before), **data}}
            await self._context.binder.write(
                lambda: api.patch(CONFIG_MAPS, name, change, owner.namespace)
            )

    async def _forget(self) -> None:
        """Remove the log of the attempt that is one too many."""
        owner, oldest = self._plan.owner, self._plan.run.attempt - MOST_ATTEMPTS
        if oldest <= 0:
            return
        name, api = kept_name(owner.name, oldest), self._context.api
        with contextlib.suppress(NotFound):
            found = await api.get_metadata(CONFIG_MAPS, name, owner.namespace)
            if owner.owns(found):
                uid = found["metadata"]["uid"]
                await self._context.binder.write(
                    lambda: api.delete(CONFIG_MAPS, name, owner.namespace, uid=uid)
                )
