"""Pods that nobody runs, by which an autoscaler sees what a waiting Job needs.

A waiting Job has no pods: they are made when it has its nodes. Autoscalers look at nothing but
pods that say ``Unschedulable``. So a placeholder stands for each worker: it asks for the same
devices, CPUs and memory on the same nodes, and for a scheduler that does not exist. It belongs to
the Job, but is not controlled by it: to nobody is it a worker.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from roost.core.allocation import WORKER, Allocation
from roost.core.spec import WHOLE, Resources, RunId
from roost.kubernetes.client.kinds import JOBS, Object
from roost.kubernetes.jobs.blueprint import JobOwner, RunSeats, Site, short
from roost.kubernetes.jobs.containers import contained
from roost.kubernetes.jobs.request import JobRequest, id_of
from roost.kubernetes.kueue.admission import restricted
from roost.kubernetes.objects.nodes import KIND_LABELS

#: The label of all placeholders.
PLACEHOLDER = "roost.dev/placeholder"
#: A scheduler of this name does not exist: they are never bound.
NOBODY = "roost-placeholder"
#: It is never pulled.
_IMAGE = "registry.k8s.io/pause:3.10"
_VENDOR = "nvidia.com/gpu"
#: What decides where a worker may go.
_WHERE = ("nodeSelector", "tolerations", "priorityClassName", "runtimeClassName", "securityContext")


def placeholders(asked: JobRequest, workers: int, site: Site) -> list[Object]:
    """Pods for which a node has to be made as for so many workers of a Job, and all its roles."""
    run = RunId(id_of(asked.owner.namespace, asked.owner.name), 1)
    plan = asked.blueprint(run, Allocation(()), RunSeats((), ()), site)
    vendor = next(iter(dict.fromkeys(map(site.vendors.get, site.vendors))), None) or _VENDOR
    found: list[Object] = []
    parts = [(WORKER, workers, asked.spec.resources)]
    parts += [(role.name, role.workers, role.resources) for role in asked.spec.roles]
    for role, count, need in parts:
        probe = restricted(plan.probe(role), asked.choices, gpus=bool(need.gpus))
        found += (
            _pod(asked.owner, f"{role}-{number}", probe, together, need, vendor)
            for number, together in enumerate(_bundles(count, need))
        )
    return found


def job_name(pod: Object) -> str:
    """The name of the Job that a placeholder stands for; empty if it is none."""
    if PLACEHOLDER not in (pod["metadata"].get("labels") or {}):
        return ""
    for one in pod["metadata"].get("ownerReferences") or ():
        if one.get("apiVersion") == JOBS.api_version and one.get("kind") == JOBS.kind:
            return str(one.get("name") or "")
    return ""


def _bundles(count: int, need: Resources) -> Iterator[int]:
    """How many workers each placeholder stands for: those that share one device are together."""
    together = max(1, WHOLE // need.share_milli) if need.gpus and need.share_milli < WHOLE else 1
    for first in range(0, count, together):
        yield min(together, count - first)


def _pod(  # noqa: PLR0913 - what one of them is made of
    owner: JobOwner, name: str, probe: Object, together: int, need: Resources, vendor: str
) -> Object:
    spec = probe["spec"]
    where = {key: copy.deepcopy(spec[key]) for key in _WHERE if key in spec}
    affinity = _affinity(spec.get("affinity") or {}, need.kinds)
    claims = [one for one in spec["volumes"] if "persistentVolumeClaim" in one]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": short(f"{owner.name}-nodes-{name}"),
            "namespace": owner.namespace,
            "labels": {PLACEHOLDER: "true"},
            # The Job does not control it: whoever looks for the Job's workers must not find it.
            "ownerReferences": [{**owner.reference(), "controller": False}],
        },
        "spec": {
            **where,
            **({"affinity": affinity} if affinity else {}),
            "schedulerName": NOBODY,
            "restartPolicy": "Never",
            "enableServiceLinks": False,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "placeholder",
                    "image": _IMAGE,
                    "resources": _resources(need, together, vendor),
                    "securityContext": contained(),
                }
            ],
            # An autoscaler asks in which zone they are.
            **({"volumes": claims} if claims else {}),
        },
    }


def _resources(need: Resources, together: int, vendor: str) -> Object:
    requests: dict[str, str] = {}
    if need.cpu_milli:
        requests["cpu"] = f"{need.cpu_milli * together}m"
    if need.memory_mib:
        requests["memory"] = f"{need.memory_mib * together}Mi"
    limits = {vendor: str(need.gpus)} if need.gpus else {}
    return {"requests": {**requests, **limits}, "limits": limits}


def _affinity(given: Mapping[str, Any], kinds: tuple[str, ...]) -> Object:
    """The Job's own affinity, and one of the labels that say which kind of GPU a node has."""
    if not kinds:
        return copy.deepcopy(dict(given))
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    own = dict(given.get("nodeAffinity") or {})
    terms = (own.get(required) or {}).get("nodeSelectorTerms") or [{}]
    of_kind = [{"key": key, "operator": "In", "values": list(kinds)} for key in KIND_LABELS]
    both = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), one]}
        for one in of_kind
        for term in terms
    ]
    return {**given, "nodeAffinity": {**own, required: {"nodeSelectorTerms": both}}}
