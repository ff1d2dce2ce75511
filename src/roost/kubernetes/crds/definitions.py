"""The custom resource definitions (Job, Queue, ClusterQueue of roost.dev/v1alpha1), as YAML too."""

from __future__ import annotations

from collections.abc import Iterable

import yaml

from roost.api.jobs import JobView
from roost.api.schema import structural
from roost.core import JobState
from roost.kubernetes.client.kinds import CLUSTER_QUEUES, JOBS, QUEUES, Object, ResourceKind
from roost.kubernetes.crds import rules
from roost.kubernetes.crds.fields import Schema, either, listed, text, whole
from roost.kubernetes.crds.schema import spec_schema

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
            "parent": text(
                *(
                    63,
                    "The ClusterQueue through which it borrows and lends; without it it is alone.",
                ),
                pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
            ),
            "lending": _gpus("What others may have of its quota; without it all of it."),
            "quotas": _quotas(),
            "cells": _cells(),
            "overflows": {
                "type": "boolean",
                "default": True,
                "description": "Whether its jobs may also run where nothing was promised to it.",
            },
        },
        "x-kubernetes-validations": list(rules.CLUSTER_QUEUE),
    }
    columns = [
        _column("Quota", "number", ".spec.quota"),
        _column("Limit", "number", ".spec.limit"),
        _column("Parent", "string", ".spec.parent"),
        _column("Weight", "number", ".spec.weight"),
        _column("Priority", "integer", ".spec.priority"),
        _column("Used", "number", ".status.used"),
        _column("Borrowed", "number", ".status.borrowed"),
        *(_column("Lent", "number", ".status.lent"), *_jobs(), _AGE),
    ]
    schema = _root("The guarantees of a tenant.", {**spec, "default": {}}, queue_status())
    return _definition(CLUSTER_QUEUES, "rcq", schema, columns)


def _quotas() -> Schema:
    """Promises of other things than GPUs of all kinds."""
    amount = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
    such = 'an amount such as 8, "500m" or 64Gi'
    each: Schema = {
        "type": "object",
        "description": "A promise of one resource.",
        "required": ["resource", "nominal"],
        "properties": {
            "resource": text(
                *(
                    253,
                    "gpu:H100 (or gpu:* for other kinds), cpu, memory, or an extended resource.",
                ),
                minLength=1,
            ),
            "nominal": either(amount, "What it is promised.", such, minimum=0),
            "borrowing": either(amount, "What it may have above that.", such, minimum=0),
            "lending": either(amount, "What others may have of it.", such, minimum=0),
        },
    }
    return {
        **listed(each, 64, "What it is promised of other resources."),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["resource"],
    }


def _cells() -> Schema:
    """Promises of places."""
    name = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
    each: Schema = {
        "type": "object",
        "description": "So many cells of a level, or one cell by its name.",
        "properties": {
            "count": whole(1, _MOST_GPUS, "How many; without it one."),
            "level": text(
                63,
                "gpu, socket, node, switch, block or zone, or a level that a tree declares.",
                pattern=name,
            ),
            "kind": text(
                253, "The kind of their GPUs, where there are several.", pattern="^[^:*,@]+$"
            ),
            "gpus": whole(1, _MOST_GPUS, "How many GPUs each has, where such cells differ."),
            "tree": text(63, "The declared tree that they have to be of.", pattern=name),
            "name": text(253, "This cell and no other: a node, or a switch.", minLength=1),
        },
        "x-kubernetes-validations": list(rules.CELL_PROMISE),
    }
    return listed(
        each, 64, "Places it is promised: what would run on them alone runs whatever others do."
    )


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


class _Plain(yaml.SafeDumper):
    """Writes a value that occurs twice twice: people read it, and anchors are for machines."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's signature
        """No value is referred to."""
        return True


def as_yaml(objects: Iterable[Object]) -> str:
    """Several objects in one text, keys in their order."""
    return yaml.dump_all(
        objects, Dumper=_Plain, sort_keys=False, width=100, explicit_start=True, allow_unicode=True
    )


_MANY = 2**31 - 1
_CONDITION: Schema = {
    "type": "object",
    "description": "One thing that is so, or not.",
    "required": ["type", "status"],
    "properties": {
        "type": text(316, "What."),
        "status": {"type": "string", "enum": ["True", "False", "Unknown"], "description": "Is it?"},
        "reason": text(1_024, "Why, in a word for programs."),
        "message": text(32_768, "Why, in a sentence for people."),
        "lastTransitionTime": {
            "type": "string",
            "format": "date-time",
            "description": "Since when.",
        },
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "minimum": 0,
            "description": "Of which generation of the object.",
        },
    },
}


def job_status() -> Schema:
    """The schema of a Job's status; more than is listed is kept, for programs."""
    return _status(
        "What became of the job.",
        state={
            "type": "string",
            "enum": [state.value for state in JobState],
            "description": "Where it is in its life.",
        },
        reason=text(32_768, "Why it waits or ended, in a sentence."),
        cause=text(256, "The same in a word."),
        workers={
            "type": "object",
            "description": "How many workers it has, and may have.",
            "properties": {
                "now": whole(0, _MANY, "At this moment."),
                "min": whole(0, _MANY, "At least."),
                "max": whole(0, _MANY, "At most."),
            },
        },
        replicas=whole(0, _MANY, "The workers that it has, for kubectl scale."),
        selector=text(1_024, "The labels of its workers' pods, for kubectl scale."),
        gpus={"type": "number", "minimum": 0, "description": "The GPUs that it holds."},
        attempt=whole(0, _MANY, "How often it was started."),
        failures=whole(0, _MANY, "How often it failed."),
        nodes=listed(text(253, "A node."), 10_000, "Where it runs."),
        progress={"type": "number", "description": "How far it is, from 0 to 1.", "nullable": True},
        view={
            **structural(JobView),
            "description": "Everything, as the REST API shows it.",
        },
    )


def queue_status() -> Schema:
    """The schema of the status of a Queue and of a ClusterQueue."""
    return _status(
        "What it holds, and who waits.",
        used={"type": "number", "minimum": 0, "description": "GPUs that its jobs hold."},
        borrowed={"type": "number", "minimum": 0, "description": "GPUs that it has from others."},
        lent={"type": "number", "minimum": 0, "description": "GPUs of its quota that others have."},
        waiting=whole(0, _MANY, "Jobs that wait in it."),
        running=whole(0, _MANY, "Jobs that run from it."),
        cells=listed(
            {
                "type": "object",
                "description": "How it stands with one promise of cells.",
                "properties": {
                    "promise": text(512, "Such as 2xnode:A100."),
                    "used": whole(0, _MANY, "Of these cells, those that its jobs are in."),
                    "broken": whole(0, _MANY, "Of these cells, those that cannot be had."),
                },
            },
            *(64, "How it stands with the cells of a ClusterQueue."),
        ),
    )


def _status(description: str, **properties: Schema) -> Schema:
    return {
        "type": "object",
        "description": description,
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {
            "observedGeneration": {
                "type": "integer",
                "format": "int64",
                "minimum": 0,
                "description": "Of which generation of the object this tells.",
            },
            **properties,
            "conditions": {
                "type": "array",
                "items": _CONDITION,
                "maxItems": 32,
                "description": "What is so, each with a reason.",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        },
    }
