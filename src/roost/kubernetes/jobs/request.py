"""A Job object as the operator reads it: what is to run, and what its user wants now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from roost.core import Allocation, JobId, JobSpec, Range, RunId
from roost.jobfile import JobFile
from roost.jobs.record import JobRecord
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.crds import (
    is_suspended,
    job_file,
    parcels_of,
    pod_of,
    secrets_name,
    wanted_replicas,
)
from roost.kubernetes.jobs.blueprint import Blueprint, JobOwner, RunSeats, Site
from roost.kubernetes.jobs.pod_overrides import PodOverrides, pod_overrides
from roost.kubernetes.kueue.admission import (
    Admission,
    FlavourChoice,
    QueueWish,
    restricted,
    wish_of,
)
from roost.kubernetes.objects.gang_refs import JOB
from roost.kubernetes.operator.queues import DEFAULT
from roost.kubernetes.operator.status import LastStatus, moment
from roost.store.rows import JobRow

USER = "roost.dev/user"
REQUEST = "roost.dev/request"
CANCEL = "roost.dev/cancel"
MIGRATE = "roost.dev/migrate"


def id_of(namespace: str, name: str) -> JobId:
    """What a Job is called in the core."""
    return JobId(f"{namespace}.{name}")


def key_of(job: JobId) -> tuple[str, str] | None:
    """The namespace and the name of a Job; None for what is no Job's name."""
    namespace, dot, name = job.partition(".")
    return (namespace, name) if dot and name and "." not in name else None


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a Job object asks for."""

    owner: JobOwner
    file: JobFile
    #: What it was declared for, with the nodes that will do; its queue is the core's.
    spec: JobSpec
    pod_overrides: PodOverrides
    user: str
    secrets_from: str
    #: The parcels of the folder that it was sent with.
    parcels: tuple[str, ...] = ()
    #: The labels of the object itself.
    labels: tuple[tuple[str, Any], ...] = ()
    #: The flavours of which its queue may have what it asks for.
    choices: tuple[FlavourChoice, ...] = ()

    @classmethod
    def of(cls, found: Object) -> JobRequest:
        """Read an object; raises InvalidSpec with all that is wrong."""
        meta = found["metadata"]
        notes = meta.get("annotations") or {}
        file, user = job_file(found), notes.get(USER, "")
        file.program()  # refuses what cannot be run
        return cls(
            JobOwner(meta["namespace"], meta["name"], meta["uid"]),
            file,
            # What is learnt of a user counts in one namespace: the name is not checked.
            file.spec(f"{meta['namespace']}/{user}" if user else meta["namespace"]),
            pod_overrides(pod_of(found)),
            user,
            secrets_name(found),
            parcels_of(found),
            tuple((meta.get("labels") or {}).items()),
        )

    def blueprint(
        self, run: RunId, allocation: Allocation, crew: RunSeats, site: Site
    ) -> Blueprint:
        """The objects of a run of it."""
        return Blueprint(
            self.owner,
            self.file,
            self.spec,
            run,
            allocation,
            crew,
            site,
            self.pod_overrides,
            self.user,
            secrets_from=self.secrets_from,
            parcels=self.parcels,
        )

    def placed(self, site: Site, admission: Admission, needs: Any) -> JobRequest:
        """The same with the pools of nodes that its pods may go to; raises InvalidSpec.

        ``needs`` tells what a pod needs (``context.need_of``).
        """
        choices = admission.choices
        run = RunId(id_of(self.owner.namespace, self.owner.name), 1)
        plan = self.blueprint(run, Allocation(()), RunSeats((), ()), site)

        def pooled(role: str, resources: Any) -> Any:
            found = needs(restricted(plan.probe(role), choices, gpus=bool(resources.gpus)))
            return replace(
                resources,
                pool=found.pool,
                cpu_milli=found.cpu_milli,
                memory_mib=found.memory_mib,
                extras=found.extras,
            )

        spec = replace(
            self.spec,
            queue=admission.queue,
            preempts=self.spec.preempts and admission.preempts,
            resources=pooled("worker", self.spec.resources),
            roles=tuple(
                replace(role, resources=pooled(role.name, role.resources))
                for role in self.spec.roles
            ),
        )
        if admission.priority is not None:
            spec = replace(spec, priority=self._rank(admission.priority))
        return replace(self, spec=spec, choices=choices)

    @property
    def wish(self) -> QueueWish:
        """The queues and classes that it names; raises InvalidSpec."""
        return wish_of(dict(self.labels), "" if self.file.queue == DEFAULT else self.file.queue)

    @property
    def priority_class(self) -> str:
        """The PriorityClass of its pods; empty if it names none."""
        return str(self.pod_overrides.pod.get("priorityClassName") or "")

    def ranked(self, found: Object) -> JobRequest:
        """The same with the priority of a PriorityClass, in place of its own."""
        preempts = found.get("preemptionPolicy") != "Never"
        priority = self._rank(int(found.get("value") or 0))
        return replace(self, spec=replace(self.spec, priority=priority, preempts=preempts))

    def _rank(self, priority: int) -> int:
        """The priority of a class; that of a guest stays below all that is none."""
        return min(priority, self.spec.priority) if self.file.guest else priority

    def wanted(self, found: Object) -> JobSpec:
        """What its user wants now: of so many workers, if they said."""
        return replace(self.spec, workers=self.workers(found))

    def workers(self, found: Object) -> Range:
        """How many workers its user wants now."""
        replicas = wanted_replicas(found)
        low, high = self.spec.workers
        if replicas is None:
            return self.spec.workers
        exactly = min(max(replicas, low), high)
        return Range(exactly, exactly)

    def record(self, found: Object) -> JobRecord:
        """What is kept of it beside the core, as its status remembers it."""
        meta = found["metadata"]
        view = (found.get("status") or {}).get("view") or {}
        return JobRecord.of(
            JobRow(
                id=id_of(self.owner.namespace, self.owner.name),
                name=meta["name"],
                user=self.user,
                queue=self.file.queue,
                state=str(view.get("state") or "queued"),
                request=(meta.get("annotations") or {}).get(REQUEST, ""),
                view=view,
                document=self.file.document(),
            )
        )


def last_status(found: Object, status: Object | None = None) -> LastStatus:
    """What an object says of itself so far."""
    meta = found["metadata"]
    return LastStatus(
        found.get("status") or {} if status is None else status,
        int(meta.get("generation") or 0),
        f"{JOB}={meta['name']}",
    )


def submitted_at(found: Object) -> float:
    """When the object was made."""
    return moment(found["metadata"].get("creationTimestamp")) or 0.0


def annotation(found: Object, name: str) -> str | None:
    """An annotation of the object."""
    value = (found["metadata"].get("annotations") or {}).get(name)
    return None if value is None else str(value)


def is_held(found: Object) -> bool:
    """Whether its user wants it to stand aside."""
    return is_suspended(found)
