"""Asks by a ProvisioningRequest of Cluster Autoscaler: for a whole gang at once, with an answer.

A Job has one, with a PodTemplate for each sort of its pods. They belong to the Job. What the
autoscaler says stands in the request's conditions:

    Accepted         it knows of it
    Provisioned      the nodes are there and kept for the Job for some minutes
    Failed           they will not come
    BookingExpired   they were there, and are kept no longer
    CapacityRevoked  they were there, and were taken away
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable

from roost.core import JobId
from roost.errors import Conflict
from roost.kubernetes.autoscaling.disruption import provisioning_class
from roost.kubernetes.autoscaling.placeholders import PLACEHOLDER, job_name, placeholders
from roost.kubernetes.autoscaling.ways import Asked, AutoscalerAnswer, NodeWish, by_job
from roost.kubernetes.client.kinds import POD_TEMPLATES, PROVISIONING_REQUESTS, Object
from roost.kubernetes.client.lease import Deposed
from roost.kubernetes.jobs.blueprint import Site, request_name, short
from roost.kubernetes.jobs.pods import ensure
from roost.kubernetes.objects.pods import is_leaving
from roost.kubernetes.objects.values import section, sections, text
from roost.kubernetes.operator.workload import OperatorContext

#: Conditions that end a request without nodes, the last word first, and how each is told.
_ENDS = (
    ("Failed", "its ProvisioningRequest failed"),
    ("CapacityRevoked", "the nodes that were provisioned for it were taken away"),
    ("BookingExpired", "the nodes that were provisioned for it are kept no longer"),
)
_LONGEST = 200


class ProvisioningRequests:
    """Asks by one ProvisioningRequest for each Job."""

    gives_way = False

    def __init__(self, context: OperatorContext, site: Callable[[], Site]) -> None:
        self._context, self._site = context, site

    def there(self) -> dict[JobId, dict[str, Object]]:
        """All requests of Jobs."""
        return by_job(self._context.objects(PROVISIONING_REQUESTS), job_name)

    async def ask(self, wish: NodeWish, there: Asked, stopped: Callable[[], bool]) -> None:
        """Make the templates, then the request; one of another content cannot change, and goes."""
        site, owner = self._site(), wish.owner
        templates, body = request(wish, site)
        name = body["metadata"]["name"]
        for other, found in there.items():
            if other != name or not _says(found, body) or not owner.owns(found):
                await self.withdraw({other: found})
                return
        if name in there:
            return
        for template in templates:
            await ensure(self._context, owner, POD_TEMPLATES, template)
            if stopped():
                return
        await ensure(self._context, owner, PROVISIONING_REQUESTS, body)

    async def withdraw(self, there: Asked) -> None:
        """Remove them with their templates."""
        context = self._context
        for found in there.values():
            if is_leaving(found):
                continue
            meta = found["metadata"]
            space, uid = meta["namespace"], meta["uid"]
            for one in sections(section(found, "spec"), "podSets"):
                if name := text(section(one, "podTemplateRef"), "name"):
                    await context.binder.write(
                        lambda name=name, space=space: context.api.delete(  # type: ignore[misc]
                            POD_TEMPLATES, name, space
                        )
                    )
            try:
                await context.binder.write(
                    lambda meta=meta, space=space, uid=uid: context.api.delete(  # type: ignore[misc]
                        PROVISIONING_REQUESTS, meta["name"], space, uid=uid
                    )
                )
            except Deposed:
                raise
            except Conflict:  # another of that name
                continue

    def answer(self, there: Asked) -> AutoscalerAnswer:
        """What the conditions of its request say."""
        for found in (one for one in there.values() if not is_leaving(one)):
            conditions = sections(section(found, "status"), "conditions")
            said = {
                (text(one, "type"), text(one, "status")): text(one, "message")[:_LONGEST]
                for one in conditions
            }
            holds = {name: why for (name, status), why in said.items() if status == "True"}
            for condition, sentence in _ENDS:
                if condition in holds:
                    why = holds[condition]
                    return AutoscalerAnswer(f"{sentence}: {why}" if why else sentence, refused=True)
            if "Provisioned" in holds:
                return AutoscalerAnswer("they are provisioned")
            if refusal := said.get(("Provisioned", "False")):
                return AutoscalerAnswer(f"the autoscaler says: {refusal}")
            if "Accepted" in holds:
                return AutoscalerAnswer("the autoscaler has accepted that")
        return AutoscalerAnswer()


def request(wish: NodeWish, site: Site) -> tuple[list[Object], Object]:
    """The templates of a Job's pods, and the request that counts them."""
    owner = wish.owner
    name = request_name(owner.name)
    meta = {
        "namespace": owner.namespace,
        "labels": {PLACEHOLDER: "true"},
        "ownerReferences": [{**owner.reference(), "controller": False}],
    }
    templates: list[Object] = []
    pod_sets: list[Object] = []
    for number, (spec, count) in enumerate(_alike(placeholders(wish.asked, wish.workers, site))):
        called = short(f"{name}-{number}")
        # What the autoscaler imagines are pods of the Job's: their scheduler is Roost.
        pod = {"metadata": {"labels": {}}, "spec": {**spec, "schedulerName": site.scheduler}}
        templates.append(
            {
                "apiVersion": "v1",
                "kind": POD_TEMPLATES.kind,
                "metadata": {"name": called, **copy.deepcopy(meta)},
                "template": pod,
            }
        )
        pod_sets.append({"podTemplateRef": {"name": called}, "count": count})
    body = {
        "apiVersion": PROVISIONING_REQUESTS.api_version,
        "kind": PROVISIONING_REQUESTS.kind,
        "metadata": {"name": name, **copy.deepcopy(meta)},
        "spec": {
            "provisioningClassName": provisioning_class(site.provisioning),
            "podSets": pod_sets,
        },
    }
    return templates, body


def _alike(pods: Iterable[Object]) -> list[tuple[Object, int]]:
    """The specifications of pods, each once, with how many pods have it."""
    counts: dict[str, int] = {}
    for pod in pods:
        key = json.dumps(pod["spec"], sort_keys=True)
        counts[key] = counts.get(key, 0) + 1
    return [(json.loads(key), count) for key, count in counts.items()]


def _says(found: Object, body: Object) -> bool:
    """Whether a request asks for the same as another one."""
    here, wanted = section(found, "spec"), body["spec"]
    sets = [
        {"podTemplateRef": section(one, "podTemplateRef"), "count": one.get("count")}
        for one in sections(here, "podSets")
    ]
    name = "provisioningClassName"
    return text(here, name) == wanted[name] and bool(sets == wanted["podSets"])
