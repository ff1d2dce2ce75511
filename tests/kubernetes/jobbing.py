"""An operator with Jobs within a test, and what tests ask of Jobs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tests.kubernetes.operating import operating
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import until

from roost.errors import Conflict, NotFound
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS, PODS, Object, ResourceKind
from roost.kubernetes.crds import definitions
from roost.kubernetes.jobs.blueprint import Site
from roost.kubernetes.jobs.controller import JobController, JobOptions
from roost.kubernetes.operator.loop import Operator
from roost.kubernetes.operator.workload import SourceFactory

SPACE = "default"
PRETEND = "roost.dev/pretend"
DEFINITIONS = ResourceKind(
    *("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"),
    namespaced=False,
)


async def define(api: Api) -> None:
    """Let the API server know Roost's own kinds."""
    for one in definitions():
        with contextlib.suppress(Conflict):
            await api.create(DEFINITIONS, one)
    await until(lambda: api.discover(JOBS))


def job(name: str, *, namespace: str = SPACE, **spec: Any) -> Object:
    """A Job that sleeps."""
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"image": "busybox", "command": ["sleep", "inf"], "gpus": 1, **spec},
    }


@contextlib.asynccontextmanager
async def jobbing(
    plane: ControlPlane,
    site: Site | None = None,
    meeting_port: int | None = None,
    server: str = "",
    user: str = "admin",
    **options: Any,
) -> AsyncIterator[Operator]:
    """An operator that leads and knows Jobs, with a connection of its own, maybe by a proxy."""
    way = plane.kubeconfig_of(user, server=server)
    asks = bool(options.pop("asks_for_nodes", False))
    known = JobOptions(site or Site("roost-train"), meeting_port=meeting_port, asks_for_nodes=asks)
    kinds = (*JobController.kinds, *JobController.asking_kinds)
    opening = SourceFactory(kinds, lambda context: JobController(context, known))
    given = {"lease_s": 2.0, **options}
    async with operating(plane, [opening], Path(way), **given) as operator:
        yield operator


async def status(api: Api, name: str, namespace: str = SPACE) -> Object:
    """What a Job says of itself; nothing if it is gone."""
    try:
        return (await api.get(JOBS, name, namespace)).get("status") or {}
    except NotFound:
        return {}


async def pods(api: Api, name: str, namespace: str = SPACE) -> list[Object]:
    """The pods of a Job, oldest first."""
    found, _ = await api.list(PODS, namespace, labels=f"roost.dev/job={name}")
    return sorted(found, key=lambda pod: pod["metadata"]["name"])


async def reaches(api: Api, name: str, state: str, timeout_s: float = 60, **more: Any) -> Object:
    """The status of a Job once it is in a state."""

    async def there() -> Object:
        found = await status(api, name)
        fits = found.get("state") == state and all(found.get(k) == v for k, v in more.items())
        return found if fits else {}

    try:
        return await until(there, timeout_s)
    except TimeoutError:
        raise AssertionError(f"{name} is not {state}: {await status(api, name)}") from None


async def pretend(api: Api, pod: Object, what: str) -> None:
    """Let KWOK end a pod: ``succeeds`` or ``fails``."""
    meta = pod["metadata"]
    patch = {"metadata": {"annotations": {PRETEND: what}}}
    await api.patch(PODS, meta["name"], patch, meta["namespace"])


async def patched(api: Api, name: str, **patch: Any) -> Object:
    """Change a Job."""
    return await api.patch(JOBS, name, patch, SPACE)


async def all_gone(api: Api, name: str) -> bool:
    """Whether no pod of a Job is left."""
    return not await pods(api, name)


def condition(found: Object, type_: str) -> Object:
    """One condition of a status."""
    return next(one for one in found["conditions"] if one["type"] == type_)


Check = Callable[[], Any]
