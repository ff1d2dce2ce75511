"""Definitions that change under objects that are there, up and down, on a real API server."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Iterator

import pytest
from tests.kubernetes.jobbing import DEFINITIONS, job
from tests.kubernetes.test_manifests import CRDS, Kubectl
from tests.support.kubernetes.control_plane import ControlPlane
from tests.unit.cli.told import roost
from tests.unit.kubernetes.administration.test_installed import job_definition, properties

from roost.errors import Conflict
from roost.kubernetes.administration.installed import DefinitionUpgrade, changes
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS, Object
from roost.kubernetes.crds import as_yaml, definitions, job_file


@pytest.fixture
def kubectl(cluster: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubectl]:
    made = Kubectl(cluster)
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    applied(made, CRDS)
    yield made
    roost("kubernetes", "upgrade", "--force")
    applied(made, CRDS)


def applied(kubectl: Kubectl, crds: str) -> None:
    kubectl.does("apply", "--server-side", "--force-conflicts", "-f", "-", given=crds)
    names = [f"crd/{one['metadata']['name']}" for one in definitions()]
    kubectl.does("wait", "--for=condition=Established", *names)


async def upgraded(api: Api, wanted: Object, *, is_forced: bool = False) -> list[str]:
    one = DefinitionUpgrade(api, wanted)
    return [line async for line in one.run(is_rehearsal=False, is_forced=is_forced)]


async def stored(api: Api) -> list[str]:
    found = await api.get(DEFINITIONS, "jobs.roost.dev")
    return list(found["status"]["storedVersions"])


@pytest.mark.usefixtures("kubectl")
def test_what_the_server_makes_of_a_definition_is_no_difference(
    api: Api, runner: asyncio.Runner
) -> None:
    for wanted in definitions():
        found = runner.run(api.get(DEFINITIONS, wanted["metadata"]["name"]))
        assert changes(wanted, found) == []
    told = roost("kubernetes", "upgrade")
    assert told.out.splitlines() == [
        f"{one['metadata']['name']}  is up to date" for one in definitions()
    ]
    assert roost("kubernetes", "check").out == "nothing is lacking\n"


@pytest.mark.usefixtures("kubectl")
def test_objects_of_an_old_definition_survive_the_new_one_and_the_way_back(
    api: Api, runner: asyncio.Runner
) -> None:
    old = job_definition()
    for name in ("within", "when_suspended", "roles"):
        del properties(old)[name]
    rules = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    rules["x-kubernetes-validations"] = [
        one
        for one in rules["x-kubernetes-validations"]
        if not any(word in one["rule"] for word in ("within", "when_suspended", "roles"))
    ]

    async def story() -> None:
        await upgraded(api, old)
        made = await api.create(JOBS, job("birds", workers=2, labels={"team": "a"}))
        told = await asyncio.to_thread(roost, "kubernetes", "check")
        assert told.status == 1
        (line,) = told.out.splitlines()
        assert line.startswith("wrong  definition jobs.roost.dev  is of another version: spec.")
        assert line.endswith("roost kubernetes upgrade")

        rehearsed = await asyncio.to_thread(roost, "kubernetes", "upgrade", "--dry-run")
        assert "jobs.roost.dev  differs: " in rehearsed.out
        assert changes(job_definition(), await api.get(DEFINITIONS, "jobs.roost.dev"))
        done = await asyncio.to_thread(roost, "kubernetes", "upgrade")
        assert "jobs.roost.dev  1 objects are stored anew" in done.out.splitlines()
        found = await api.get(JOBS, "birds", "default")
        assert found["spec"] == {**made["spec"], "when_suspended": "freeze"}  # the default
        assert found["metadata"]["uid"] == made["metadata"]["uid"]
        assert job_file(found).name == "birds"
        body = {"status": {"state": "running", "replicas": 2}}
        await api.patch(JOBS, "birds", body, "default", sub="status")
        await api.patch(JOBS, "birds", {"spec": {"suspend": True}}, "default")

        await api.create(JOBS, job("new", within="switch"))
        with pytest.raises(Conflict, match=r"Job default/new has spec\.within"):
            await upgraded(api, old)
        assert (await api.get(JOBS, "new", "default"))["spec"]["within"] == "switch"
        await api.delete(JOBS, "new", "default")
        await upgraded(api, old)
        assert (await api.get(JOBS, "birds", "default"))["spec"]["labels"] == {"team": "a"}

    runner.run(story())


@pytest.mark.usefixtures("kubectl")
def test_a_second_version_comes_and_goes_with_all_objects(api: Api, runner: asyncio.Runner) -> None:
    beta = JOBS._replace(version="v1beta1")

    async def story() -> None:
        made = [await api.create(JOBS, job(f"birds-{n}", workers="1..2")) for n in range(3)]
        both = job_definition("v1beta1", storage="v1alpha1")
        await upgraded(api, both)  # the release in which both are served
        for one in made:
            found = await api.get(beta, one["metadata"]["name"], "default")
            assert (found["apiVersion"], found["spec"]) == ("roost.dev/v1beta1", one["spec"])
        await api.patch(beta, "birds-0", {"spec": {"suspend": True}}, "default")
        assert (await api.get(JOBS, "birds-0", "default"))["spec"]["suspend"]

        await upgraded(api, job_definition("v1beta1", storage="v1beta1"))  # the one that stores it
        assert await stored(api) == ["v1beta1"]
        alone = copy.deepcopy(job_definition("v1beta1", storage="v1beta1"))
        alone["spec"]["versions"] = alone["spec"]["versions"][1:]
        await upgraded(api, alone)  # and the one that knows nothing else
        assert len((await api.list(beta))[0]) == 3
        with pytest.raises(Conflict, match="stored as v1beta1, which this version of Roost"):
            await upgraded(api, definitions()[0])

        await upgraded(api, both)  # and back by the same steps
        await upgraded(api, definitions()[0])
        assert await stored(api) == ["v1alpha1"]
        for one in made:
            found = await api.get(JOBS, one["metadata"]["name"], "default")
            assert found["spec"].get("workers") == "1..2"
            assert found["metadata"]["uid"] == one["metadata"]["uid"]

    runner.run(story())


def test_a_definition_that_refuses_an_object_is_told(
    kubectl: Kubectl, api: Api, runner: asyncio.Runner
) -> None:
    """A server without ratcheting would refuse the status of such an object, too."""
    kubectl.does("apply", "-f", "-", given=json.dumps(job("birds", image="old:1")))
    strict = job_definition()
    spec = strict["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["x-kubernetes-validations"].append(
        {"rule": "self.image == 'new:1'", "message": "another image"}
    )
    assert "image == 'new:1'" in as_yaml([strict])
    lines = runner.run(outcome(api, strict))
    assert "another image" in lines or "1 objects are stored anew" in lines


async def outcome(api: Api, wanted: Object) -> str:
    try:
        return "\n".join(await upgraded(api, wanted))
    except Conflict as error:
        return str(error)
