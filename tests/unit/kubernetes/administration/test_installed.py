"""Definitions that are installed and those that are wanted, without an API server."""

from __future__ import annotations

import asyncio
import copy
from typing import Any, cast

import pytest

from roost.errors import Conflict, InvalidSpec, NotFound
from roost.kubernetes.administration.installed import DEFINITIONS, DefinitionUpgrade, changes
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS, Object, ResourceKind
from roost.kubernetes.crds import definitions


def job_definition(*more: str, storage: str = "v1alpha1") -> Object:
    """The definition of Jobs, served in more versions with the same schema."""
    made = copy.deepcopy(definitions()[0])
    (first,) = made["spec"]["versions"]
    made["spec"]["versions"] = [
        {**copy.deepcopy(first), "name": name, "storage": name == storage}
        for name in ("v1alpha1", *more)
    ]
    return made


def properties(definition: Object) -> Any:
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema["properties"]["spec"]["properties"]


#: ``list`` is a method below.
Lines = list[str]
Page = tuple[list[Object], str]


class Played:
    """An API server with one definition and its objects."""

    def __init__(self, there: Object | None, *jobs: Object) -> None:
        self.there, self.jobs = there, list(jobs)
        self.written: list[str] = []
        self.refuses = ""

    async def get(self, kind: ResourceKind, name: str) -> Object:
        assert kind is DEFINITIONS
        if self.there is None:
            raise NotFound(name)
        return copy.deepcopy(self.there)

    async def list(self, kind: ResourceKind) -> Page:
        assert kind.plural == JOBS.plural
        return self.jobs, "1"

    async def patch(
        self, kind: ResourceKind, name: str, body: Any, namespace: str = "", **given: str
    ) -> Object:
        if kind is not DEFINITIONS:
            self.written.append(f"{kind.version}:{namespace}/{name}")
            if name == self.refuses:
                raise InvalidSpec(f"{name} is wrong")
            return {}
        if given.get("sub"):
            assert self.there is not None
            self.there["status"] |= body["status"]
        else:
            before = self.there or {"status": {"storedVersions": []}}
            self.there = {
                **copy.deepcopy(before),
                "spec": {**before.get("spec", {}), **body["spec"]},
            }
            stores = next(v["name"] for v in self.there["spec"]["versions"] if v["storage"])
            stored = dict.fromkeys([*self.there["status"]["storedVersions"], stores])
            left = {v["name"] for v in self.there["spec"]["versions"]}
            assert set(stored) <= left, "the API server refuses this"
            conditions = [{"type": "Established", "status": "True"}]
            self.there["status"] = {"storedVersions": [*stored], "conditions": conditions}
        return {}

    def upgraded(self, wanted: Object, **given: bool) -> Lines:
        options = {"is_rehearsal": False, "is_forced": False, **given}

        async def all_of_it() -> Lines:
            one = DefinitionUpgrade(cast("Api", self), wanted)
            return [line async for line in one.run(**options)]

        return asyncio.run(all_of_it())


def there(definition: Object, *stored: str) -> Object:
    return {**definition, "status": {"storedVersions": list(stored or ("v1alpha1",))}}


def job(name: str, **spec: Any) -> Object:
    return {"metadata": {"name": name, "namespace": "lab"}, "spec": spec}


def test_what_is_missing_is_installed() -> None:
    played = Played(None)
    assert played.upgraded(job_definition()) == ["jobs.roost.dev  is missing: installed"]
    assert played.there is not None
    assert played.upgraded(job_definition()) == ["jobs.roost.dev  is up to date"]


def test_a_rehearsal_changes_nothing() -> None:
    old = job_definition()
    del properties(old)["within"]
    played = Played(there(copy.deepcopy(old)), job("a"))
    (line,) = played.upgraded(job_definition(), is_rehearsal=True)
    assert line.startswith("jobs.roost.dev  differs: spec.within is missing")
    assert played.there == there(old)
    assert not played.written
    assert Played(None).upgraded(job_definition(), is_rehearsal=True)


def test_every_object_is_tried_with_the_new_definition() -> None:
    old = job_definition()
    properties(old)["workers"]["x-odd"] = 1
    played = Played(there(old), job("a"), job("b"))
    lines = played.upgraded(job_definition())
    assert lines[1] == "jobs.roost.dev  2 objects are stored anew"
    assert played.written == ["v1alpha1:lab/a", "v1alpha1:lab/b"]
    played = Played(there(old), job("a"), job("b"))
    played.refuses = "b"
    with pytest.raises(Conflict, match=r"1 objects are not accepted .*put the old one back.*b is"):
        played.upgraded(job_definition())


def test_a_field_that_an_object_uses_is_not_taken_away() -> None:
    new = job_definition()
    properties(new)["later"] = {"type": "string"}
    properties(new)["roles"]["additionalProperties"]["properties"]["odd"] = {"type": "string"}
    for used in ({"later": "x"}, {"roles": {"ps": {"odd": "y"}}}):
        played = Played(there(copy.deepcopy(new)), job("a", run="x"), job("b", **used))
        with pytest.raises(
            Conflict, match=r"Job lab/b has spec.* which this version of Roost does"
        ):
            played.upgraded(job_definition())
        assert played.there == there(new)
        assert played.upgraded(job_definition(), is_forced=True)
    properties(new)["later"]["default"] = "usual"
    played = Played(there(new), job("a", run="x", roles={"ps": {}}, later="usual"))
    assert "is not of this version" in played.upgraded(job_definition())[0]


def test_up_to_a_second_version_and_down_again() -> None:
    both = job_definition("v1beta1", storage="v1beta1")
    played = Played(there(job_definition()), job("a"))
    assert changes(both, job_definition())
    played.upgraded(both)
    assert played.there is not None
    assert played.there["status"]["storedVersions"] == ["v1beta1"]
    assert played.written == ["v1beta1:lab/a"]

    played.written.clear()
    assert played.upgraded(job_definition())
    assert played.there["status"]["storedVersions"] == ["v1alpha1"]
    assert [one["name"] for one in played.there["spec"]["versions"]] == ["v1alpha1"]
    assert played.written == ["v1alpha1:lab/a"]


def test_a_version_that_is_not_known_at_all_stands_in_the_way() -> None:
    far = job_definition("v1", storage="v1")
    far["spec"]["versions"] = far["spec"]["versions"][1:]
    with pytest.raises(Conflict, match="stored as v1, which this version of Roost does not know"):
        Played(there(far, "v1")).upgraded(job_definition())
