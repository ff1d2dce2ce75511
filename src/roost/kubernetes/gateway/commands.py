"""What people ask of jobs and queues, as requests to the API server.

A wish is a field or an annotation of an object, which the operator heeds. The API server says
who may write it.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import Any, Protocol

from roost.core import JobId, NodeId, QueueId, QueueSpec, Range
from roost.errors import Conflict, InvalidSpec, NotFound, RoostError
from roost.jobfile import JobFile
from roost.jobs.requests import CloneRequest, JobSubmission, RerunRequest
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import CLUSTER_QUEUES, JOBS, QUEUES, SECRETS, Object
from roost.kubernetes.crds import cluster_queue_object, job_object, secrets_name
from roost.kubernetes.gateway.folders import ClusterFolders
from roost.kubernetes.gateway.rows import NAME, check_own, place_of
from roost.kubernetes.jobs.request import CANCEL, MIGRATE, REQUEST, USER
from roost.store.rows import JobRow, QueueRow, RestorePointRow

ASKED = "roost.dev/asked-by"
_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that look alike
_ID_LETTERS = 5


class JobListing(Protocol):
    """Where jobs are listed."""

    async def admit(self, request: JobSubmission) -> None:
        """Raise where a job's queue or secrets are wrong."""
        ...

    async def row(self, job: JobId) -> JobRow:
        """A job as it is listed; raises NotFound."""
        ...

    async def made(self, job: Object) -> JobRow:
        """A Job that was just made, as it is listed from now on."""
        ...

    async def asked_before(self, user: str, key: str) -> JobRow | None:
        """The job that this request has made already."""
        ...

    async def newer(self, row: JobRow) -> JobRow:
        """A job once something has come of a wish; as it was, where nothing does soon.

        Raises NotFound if it is no more.
        """
        ...


class ClusterCommands:
    """The part of a cluster that writes."""

    def __init__(self, api: Api, views: JobListing, folders: ClusterFolders) -> None:
        self._api, self._views, self._folders = api, views, folders

    async def submit(self, request: JobSubmission) -> tuple[JobRow, bool]:
        """Create a Job in the namespace of the context; the same key again finds the first."""
        await self._views.admit(request)
        if request.payload is not None:
            raise InvalidSpec("a function cannot be sent to Kubernetes; submit a command")
        if not request.job.image:
            raise InvalidSpec("a job on Kubernetes needs an image; give it one with image: NAME")
        known = await self._views.asked_before(request.user, request.key)
        if known is not None:
            return known, False
        sent = request.job.program().sent
        parcels = await self._folders.stow(sent) if sent else ()
        job = job_object(_named(request.job), self._api.namespace, parcels=parcels)
        noted = {USER: request.user, REQUEST: request.key, NAME: request.job.name}
        job["metadata"]["annotations"] = {name: text for name, text in noted.items() if text}
        made = await self._api.create(JOBS, job, self._api.namespace)
        try:
            await self._folders.hold(parcels, _reference(made))
            if request.secrets:
                await self._api.create(SECRETS, _secret(made, dict(request.secrets)))
        except RoostError:  # without them it would wait for ever
            await self._api.delete(JOBS, made["metadata"]["name"], self._api.namespace)
            raise
        return await self._views.made(made), True

    async def rerun(self, rerun: RerunRequest) -> tuple[JobRow, bool]:
        """Create a new Job with the job file of an earlier one; the API server has no secrets."""
        file = rerun.file()
        return await self.submit(
            JobSubmission(file, rerun.user, rerun.unix, rerun.secrets, key=rerun.key)
        )

    async def cancel(self, job: JobId, actor: str) -> JobRow:
        """End a job; one that is over stays as it is."""
        return await self._patch(job, actor, notes={CANCEL: actor or "somebody"})

    async def suspend(self, job: JobId, actor: str) -> JobRow:
        """Take a job off its devices until it is resumed."""
        await self._must_live(job, "suspended")
        return await self._patch(job, actor, suspend=True)

    async def resume(self, job: JobId, actor: str) -> JobRow:
        """Let a suspended job go on."""
        await self._must_live(job, "resumed")
        return await self._patch(job, actor, suspend=False)

    async def scale(self, job: JobId, workers: Range, actor: str) -> JobRow:
        """Give a job another size, or its whole range back for the policy to choose from."""
        row = await self._must_live(job, "scaled")
        declared = Range(row.view["workers"]["min"], row.view["workers"]["max"])
        if workers.min < workers.max and workers != declared:
            raise InvalidSpec(
                "on Kubernetes a job is scaled to one number of workers, or to all that it was "
                f"declared for ({declared}), not to {workers}"
            )
        wanted = None if workers == declared and declared.min < declared.max else workers.min
        return await self._patch(job, actor, replicas=wanted)

    async def migrate(self, job: JobId, node: NodeId | None, actor: str) -> JobRow:
        """Move a running job: to a node, or anywhere else."""
        await self._must_live(job, "moved")
        return await self._patch(job, actor, notes={MIGRATE: node or ""})

    async def delete(self, job: JobId, actor: str) -> JobRow:  # noqa: ARG002 - the API server knows who asks
        """Forget a job that is over, with its pods."""
        row = check_own(await self._views.row(job))
        if row.finished_at is None:
            raise Conflict(f"job {job} is {row.state}: cancel it first")
        namespace, name = place_of(job)
        await self._api.delete(JOBS, name, namespace)
        with suppress(NotFound):
            await self._views.newer(row)
        return row

    async def set_queue(self, queue: QueueRow, actor: str) -> QueueRow:  # noqa: ARG002 - the API server knows who asks
        """Create or change a ClusterQueue, and a Queue of that name that leads to it."""
        spec = QueueSpec(
            QueueId(queue.id),
            queue.quota_milli,
            queue.limit_milli,
            queue.weight,
            queue.priority,
            cells=queue.cells,
            overflows=queue.overflows,
        )
        promise = cluster_queue_object(spec)
        way = {
            "apiVersion": QUEUES.api_version,
            "kind": QUEUES.kind,
            "metadata": {"name": queue.id, "namespace": self._api.namespace},
            "spec": {"clusterQueue": queue.id},
        }
        await self._api.patch(CLUSTER_QUEUES, queue.id, promise, strategy="apply")
        await self._api.patch(QUEUES, queue.id, way, self._api.namespace, strategy="apply")
        return queue

    async def delete_queue(self, queue: QueueId, actor: str) -> None:  # noqa: ARG002 - the API server knows who asks
        """Let a queue be no more."""
        await self._api.delete(QUEUES, queue, self._api.namespace)
        await self._api.delete(CLUSTER_QUEUES, queue)

    async def _must_live(self, job: JobId, what: str) -> JobRow:
        row = check_own(await self._views.row(job))
        if row.finished_at is not None:
            raise Conflict(f"job {job} is over: it cannot be {what}")
        return row

    async def _patch(
        self, job: JobId, actor: str, *, notes: dict[str, str] | None = None, **spec: Any
    ) -> JobRow:
        """Write a wish into a Job, and the user that has it."""
        row = check_own(await self._views.row(job))
        if row.finished_at is None:
            namespace, name = place_of(job)
            change: Object = {"metadata": {"annotations": {ASKED: actor, **(notes or {})}}}
            if spec:
                change["spec"] = spec
            await self._api.patch(JOBS, name, change, namespace)
            return await self._views.newer(row)
        return row


def _named(file: JobFile) -> JobFile:
    """The job with a name of its own: on a cluster, names are ids."""
    letters = "".join(secrets.choice(_LETTERS) for _ in range(_ID_LETTERS))
    return JobFile.from_document({**file.document(), "name": f"{file.name}-{letters}"})


def _secret(job: Object, values: dict[str, str]) -> Object:
    """The Secret of a job, which goes when the job does."""
    meta = job["metadata"]
    return {
        "metadata": {
            "name": secrets_name(job),
            "namespace": meta["namespace"],
            "ownerReferences": [_reference(job)],
        },
        "stringData": values,
    }


def _reference(job: Object) -> Object:
    """What makes an object go with a job."""
    meta = job["metadata"]
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "name": meta["name"],
        "uid": meta["uid"],
    }


def unavailable(what: str) -> Conflict:
    """Why something cannot be had."""
    return Conflict(
        f"{what}: not on Kubernetes, where checkpoints are in volumes of the job's own and devices "
        "belong to their kubelets"
    )


class NoNotifications:
    """Notifications, where there are none."""

    def shown(self) -> dict[str, Any]:
        """There is nothing to show."""
        raise Conflict(_SILENT)

    async def change(self, told: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """There is nothing to change."""
        raise Conflict(_SILENT)

    async def test(self, target: str, user: str) -> None:  # noqa: ARG002
        """Nobody is told."""
        raise Conflict(_SILENT)


_SILENT = "nobody is notified on Kubernetes: 'notify' of a job is kept there, and not honoured"


class NoSnapshots:
    """Snapshots, where there are none."""

    async def take(
        self,
        row: JobRow,
        name: str,
        actor: str,  # noqa: ARG002 - whoever asks
        key: str = "",  # noqa: ARG002 - and however often
    ) -> RestorePointRow | None:
        """Say that there is none."""
        raise unavailable(f"snapshot {row.id}@{name}")

    async def job_of(self, clone: CloneRequest) -> JobFile:
        """Say that there is none."""
        raise unavailable(f"snapshot {clone.point.job}@{clone.point.name}")

    async def delete(self, point: RestorePointRow, actor: str) -> None:  # noqa: ARG002 - whoever asks
        """Say that there is none."""
        raise unavailable(f"snapshot {point.job}@{point.name}")
