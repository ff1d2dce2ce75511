"""Objects of Kueue on a real API server: defined late, in two versions, and read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.kubernetes.jobbing import DEFINITIONS, define, job, jobbing
from tests.kubernetes.operating import bound, pods
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import create, nodes, pod, until

from roost.kubernetes.client import mirror
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import (
    JOBS,
    KUEUE_CLUSTER_QUEUES,
    KUEUE_FLAVORS,
    KUEUE_KINDS,
    KUEUE_LOCAL_QUEUES,
    PODS,
    Object,
    ResourceKind,
)
from roost.kubernetes.crds.audit import kueue_lines
from roost.kubernetes.gateway.reader import ClusterReader
from roost.kubernetes.objects.pods import is_bound

SPACE = "default"
IN_QUEUE = {"kueue.x-k8s.io/queue-name": "mine"}


def definition(kinds: list[ResourceKind]) -> Object:
    """A kind in all its versions, the first one stored; whatever it says is kept."""
    first = kinds[0]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [
        {
            "name": one.version,
            "served": True,
            "storage": one is first,
            "schema": {"openAPIV3Schema": schema},
        }
        for one in kinds
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{first.plural}.{first.group}",
            # A group of k8s.io is protected.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": first.group,
            "scope": "Namespaced" if first.namespaced else "Cluster",
            "names": {
                "kind": first.kind,
                "listKind": f"{first.kind}List",
                "plural": first.plural,
                "singular": first.kind.lower(),
            },
            "versions": versions,
        },
    }


@contextlib.asynccontextmanager
async def kueue_defined(api: Api) -> AsyncIterator[None]:
    """Let the API server know Kueue's kinds for a while."""
    by_name: dict[str, list[ResourceKind]] = {}
    for kind in KUEUE_KINDS:
        by_name.setdefault(kind.plural, []).append(kind)
    made = [await api.create(DEFINITIONS, definition(found)) for found in by_name.values()]
    try:
        for kind in KUEUE_KINDS:
            await until(lambda kind=kind: api.discover(kind))  # type: ignore[misc]
        yield
    finally:
        for one in made:
            await api.delete(DEFINITIONS, one["metadata"]["name"])


async def team(api: Api, gpus: int) -> None:
    """A ClusterQueue of so many GPUs, and a way into it."""
    flavour = {"metadata": {"name": "default"}, "spec": {}}
    promised = {"name": "nvidia.com/gpu", "nominalQuota": gpus}
    group = {
        "coveredResources": ["nvidia.com/gpu"],
        "flavors": [{"name": "default", "resources": [promised]}],
    }
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    await _create(api, KUEUE_FLAVORS[0], flavour)
    await _create(api, KUEUE_CLUSTER_QUEUES[0], {"metadata": {"name": "team"}, "spec": spec})
    way = {"metadata": {"name": "mine"}, "spec": {"clusterQueue": "team"}}
    await _create(api, KUEUE_LOCAL_QUEUES[0], way, SPACE)


async def _create(api: Api, kind: ResourceKind, body: Object, namespace: str = "") -> None:
    await api.create(kind, {"apiVersion": kind.api_version, "kind": kind.kind, **body}, namespace)


async def told(api: Api, name: str) -> str:
    """What is said to a pod that waits."""
    found = next(one for one in await pods(api) if one["metadata"]["name"] == name)
    return next(
        (
            str(one.get("message"))
            for one in found["status"].get("conditions") or ()
            if one["type"] == "PodScheduled" and one["status"] == "False"
        ),
        "",
    )


def test_they_are_read_once_they_are_defined_and_written_to_never(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "REFUSED_S", 0.2)

    async def scenario() -> None:
        await define(api)
        await nodes(api, 1, gpus=8)
        async with jobbing(cluster), kueue_defined(api):
            await create(api, PODS, [pod(f"p{n}", labels=IN_QUEUE) for n in range(3)])
            await until(lambda: _says(api, "p0", "there is no LocalQueue 'mine'"))
            assert not any(map(is_bound, await pods(api)))
            await team(api, 2)
            found = await until(lambda: bound(api, 2))
            waits = next(one["metadata"]["name"] for one in found if not is_bound(one))
            await until(lambda: _says(api, waits, "its queue"))

            # A Job of Roost's own may be in the same queue, by its field or by the label.
            await api.create(JOBS, job("own", queue="mine"), SPACE)
            await until(lambda: _queued(api, "own"))
            rows = (await ClusterReader(api).answer("queues", {}))["items"]
            (row,) = [one for one in rows if one["id"] == "kueue:team"]
            assert (row["quota"], row["limit"], row["gpus_used"]) == (2, 2, 2)
            assert await kueue_lines(api) == [
                "ClusterQueue team: is promised 2 GPUs, and borrows nothing"
            ]
            (queue,) = (await api.list(KUEUE_CLUSTER_QUEUES[1]))[0]
            assert "status" not in queue, "their statuses are Kueue's"
            assert queue["metadata"]["generation"] == 1

    runner.run(scenario())


async def _says(api: Api, name: str, words: str) -> bool:
    return words in await told(api, name)


async def _queued(api: Api, name: str) -> bool:
    status = (await api.get(JOBS, name, SPACE)).get("status") or {}
    return status.get("state") == "queued" and "its queue" in status.get("reason", "")
