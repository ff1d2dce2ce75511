"""Who may what and what is left, asked of an API server that is played; and what is printed."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
import yaml
from tests.unit.cli.told import roost

from roost.errors import Conflict, NotFound
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS, PODS, Object, ResourceKind
from roost.kubernetes.crds import definitions
from roost.kubernetes.crds.audit import lacking, left, released
from roost.kubernetes.crds.permissions import needed


class Played:
    """As much of an API server as the questions need."""

    def __init__(
        self, objects: dict[ResourceKind, list[Object]] | None = None, clashes: int = 0
    ) -> None:
        self.objects = objects or {}
        self.clashes = clashes
        self.asked: list[tuple[ResourceKind, Object]] = []
        self.denied: set[str] = set()

    async def list(self, kind: ResourceKind, **_: Any) -> tuple[list[Object], str]:
        if kind not in self.objects:
            raise NotFound(kind.plural)
        return self.objects[kind], "1"

    async def get(self, kind: ResourceKind, name: str, namespace: str) -> Object:
        found = [
            one
            for one in self.objects[kind]
            if (one["metadata"]["namespace"], one["metadata"]["name"]) == (namespace, name)
        ]
        return found[0]

    async def patch(self, kind: ResourceKind, name: str, body: Object, namespace: str) -> Object:
        found = await self.get(kind, name, namespace)
        if self.clashes:
            self.clashes -= 1
            found["metadata"]["resourceVersion"] += "+"
            found["metadata"]["finalizers"].append(f"example.org/{self.clashes}")
            raise Conflict("changed")
        assert body["metadata"].pop("resourceVersion") == found["metadata"]["resourceVersion"]
        found["metadata"] |= body["metadata"]
        return found

    async def create(self, kind: ResourceKind, body: Object) -> Object:
        self.asked.append((kind, body["spec"]))
        wanted = body["spec"]["resourceAttributes"]
        name = "/".join(
            part for part in (wanted["resource"], wanted.get("subresource", "")) if part
        )
        return {"status": {"allowed": f"{wanted['verb']} {name}" not in self.denied}}

    @property
    def api(self) -> Api:
        return cast("Api", self)


def job(name: str, *finalizers: str) -> Object:
    meta = {"name": name, "namespace": "default", "resourceVersion": "1"}
    return {"metadata": {**meta, "finalizers": list(finalizers)}}


def test_what_is_lacking_is_named() -> None:
    played = Played()
    played.denied = {"create pods/binding", "update leases"}

    missing = asyncio.run(lacking(played.api, "roost-system"))

    assert [str(one) for one in missing] == [
        "create pods/binding",
        "update leases.coordination.k8s.io",
    ]
    assert len(played.asked) == len(list(needed()))
    places = {
        spec["resourceAttributes"].get("namespace")
        for kind, spec in played.asked
        if spec["resourceAttributes"]["resource"] == "leases"
    }
    assert places == {"roost-system"}


def test_somebody_else_is_asked_for_with_their_groups() -> None:
    played = Played()
    asyncio.run(lacking(played.api, "roost-system", "system:serviceaccount:a:b"))
    kind, spec = played.asked[0]
    assert kind.kind == "SubjectAccessReview"
    assert spec["groups"] == [
        *("system:authenticated", "system:serviceaccounts", "system:serviceaccounts:a"),
    ]


def test_only_finalizers_of_roost_are_taken_off() -> None:
    jobs = [job("a", "roost.dev/job", "example.org/kept"), job("b", "example.org/kept"), job("c")]
    played = Played({JOBS: jobs})
    assert asyncio.run(released(played.api)) == ["job default/a"]
    assert [one["metadata"]["finalizers"] for one in jobs] == [
        ["example.org/kept"],
        ["example.org/kept"],
        [],
    ]


def test_an_object_that_others_change_meanwhile_keeps_what_they_wrote() -> None:
    played = Played({JOBS: [job("a", "roost.dev/job")]}, clashes=2)
    assert asyncio.run(released(played.api)) == ["job default/a"]
    assert played.objects[JOBS][0]["metadata"]["finalizers"] == ["example.org/1", "example.org/0"]


def test_one_that_never_stands_still_is_an_error() -> None:
    played = Played({JOBS: [job("a", "roost.dev/job")]}, clashes=99)
    with pytest.raises(Conflict, match="default/a is being changed all the time"):
        asyncio.run(released(played.api))


def test_what_is_left() -> None:
    def pod(labels: dict[str, str], **spec: str) -> Object:
        return {"metadata": {"name": "p", "labels": labels}, "spec": spec}

    pods = [
        pod({"roost.dev/job": "a"}, schedulerName="roost"),
        pod({}, schedulerName="roost"),
        pod({}, schedulerName="roost", nodeName="n1"),
        pod({}, schedulerName="default-scheduler"),
    ]
    found = asyncio.run(left(Played({JOBS: [job("a")], PODS: pods}).api))
    assert dict(found) == {
        "objects of jobs.roost.dev": 1,
        "pods of Roost's jobs": 1,
        "pods that wait for the scheduler roost": 1,
    }
    assert not asyncio.run(left(Played().api))


def test_the_definitions_are_printed_as_yaml() -> None:
    told = roost("kubernetes", "crds")
    assert told.status == 0
    assert list(yaml.safe_load_all(told.out)) == definitions()
    assert "&id" not in told.out
