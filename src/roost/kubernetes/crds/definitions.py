"""The custom resource definitions: Job, Queue and ClusterQueue of roost.dev/v1alpha1.

``definitions`` are plain objects, ready to be applied. They are written to ``deploy/`` by
``roost kubernetes crds``, and a test holds the files to what is made here.
"""

from __future__ import annotations

from collections.abc import Iterable

from roost.kubernetes.client.kinds import CLUSTER_QUEUES, JOBS, QUEUES, Object, ResourceKind
from roost.kubernetes.crds import rules
from roost.kubernetes.crds.fields import Schema, text
from roost.kubernetes.crds.schema import spec_schema
from roost.kubernetes.crds.status import job_status, queue_status

_MOST_GPUS = 1_000_000
_INT = 2**31
_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def definitions() -> list[Object]:
    """The three definitions, in the order in which they are applied."""
    return [_job(), _queue(), _cluster_queue()]


def _job() -> Object:
    columns = [
        _column("State", "string", ".status.state"),
        _column("Workers", "integer", ".status.replicas"),
        _column("GPUs", "number", ".status.gpus"),
        _column("Queue", "string", ".spec.queue"),
        _column("Reason", "string", ".status.reason"),
        _AGE,
    ]
    schema = {
        **_root("A job: what to run and what it needs.", spec_schema(), job_status()),
        "x-kubernetes-validations": list(rules.WHOLE_JOB),
    }
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    return _definition(JOBS, "rj", schema, columns, {"scale": scale})


def _queue() -> Object:
    spec: Schema = {
        "type": "object",
        "description": "Where the jobs of this namespace wait.",
        "required": ["clusterQueue"],
        "properties": {
            "clusterQueue": text(
                *(63, "The ClusterQueue whose guarantees it uses."),
                pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
            )
        },
    }
    columns = [
        _column("Cluster-Queue", "string", ".spec.clusterQueue"),
        *(_column("Used", "number", ".status.used"), *_jobs(), _AGE),
    ]
    schema = _root("A queue of one namespace.", spec, queue_status(), required=True)
    return _definition(QUEUES, "rq", schema, columns)


def _cluster_queue() -> Object:
    spec: Schema = {
        "type": "object",
        "description": "What was promised to a tenant, in GPUs.",
        "properties": {
            "quota": _gpus("What it is promised; without it nothing is."),
            "limit": _gpus("What it may have at most; without it there is no limit."),
            "weight": {
                "type": "number",
                "minimum": 0,
                "exclusiveMinimum": True,
                "maximum": 1_000_000,
                "default": 1,
                "description": "Its part of what nobody was promised.",
            },
            "priority": {
                "type": "integer",
                "format": "int32",
                "minimum": -_INT,
                "maximum": _INT - 1,
                "default": 0,
                "description": "Higher goes first.",
            },
        },
        "x-kubernetes-validations": list(rules.CLUSTER_QUEUE),
    }
    columns = [
        _column("Quota", "number", ".spec.quota"),
        _column("Limit", "number", ".spec.limit"),
        _column("Weight", "number", ".spec.weight"),
        _column("Priority", "integer", ".spec.priority"),
        *(_column("Used", "number", ".status.used"), *_jobs(), _AGE),
    ]
    schema = _root("The guarantees of a tenant.", {**spec, "default": {}}, queue_status())
    return _definition(CLUSTER_QUEUES, "rcq", schema, columns)


def _gpus(description: str) -> Schema:
    return {
        "type": "number",
        "minimum": 0,
        "maximum": _MOST_GPUS,
        "description": description,
    }


def _jobs() -> tuple[Object, Object]:
    return (
        _column("Waiting", "integer", ".status.waiting"),
        _column("Running", "integer", ".status.running"),
    )


def _column(name: str, kind: str, path: str) -> Object:
    return {"name": name, "type": kind, "jsonPath": path}


def _root(description: str, spec: Schema, status: Schema, *, required: bool = True) -> Schema:
    made: Schema = {
        "type": "object",
        "description": description,
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    }
    return {**made, "required": ["spec"]} if required else made


def _definition(
    kind: ResourceKind,
    short: str,
    schema: Schema,
    columns: Iterable[Object],
    more: Object | None = None,
) -> Object:
    names = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
        "shortNames": [short],
        "categories": ["roost"],
    }
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, **(more or {})},
        "additionalPrinterColumns": list(columns),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{kind.group}",
            "labels": {"app.kubernetes.io/name": "roost", "app.kubernetes.io/part-of": "roost"},
        },
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "preserveUnknownFields": False,
            "versions": [version],
        },
    }
