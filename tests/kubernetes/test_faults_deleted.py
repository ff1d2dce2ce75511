"""Namespaces, Jobs, Queues and definitions deleted in every order: nothing stays behind.

Here Kubernetes' own controllers run, too: they empty namespaces and collect what has no owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from itertools import permutations

import pytest
from tests.kubernetes.faulting import operator, settled
from tests.kubernetes.jobbing import DEFINITIONS, define, job
from tests.kubernetes.operating import gang
from tests.kubernetes.oracles import Witness
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import create, nodes, pod, until

from roost.errors import NotFound
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import (
    CLUSTER_QUEUES,
    JOBS,
    NAMESPACES,
    PODS,
    QUEUES,
    Object,
)

WAIT_S = 60.0
ORDERS = list(permutations(("namespace", "job", "queue")))


@pytest.fixture(scope="module")
def governed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with its controllers."""
    plane = ControlPlane(tmp_path_factory.mktemp("governed"), controller_manager=True)
    try:
        asyncio.run(plane.start())
    except NotFound as error:
        pytest.skip(str(error))
    yield plane
    asyncio.run(plane.stop())


@pytest.fixture
def admin(governed: ControlPlane, runner: asyncio.Runner) -> Iterator[Api]:
    """The administrator of that plane."""
    api = runner.run(Api.connect(kubeconfig=str(governed.kubeconfig)))
    yield api
    runner.run(api.close())


@pytest.mark.parametrize("goes", ["stays", "first", "last"])
def test_every_order_of_deletion_leaves_nothing(
    governed: ControlPlane, admin: Api, runner: asyncio.Runner, goes: str
) -> None:
    """The operator stays, or is gone before anything is deleted, or while it is."""

    async def scenario() -> None:
        await define(admin)
        with contextlib.suppress(Exception):
            await nodes(admin, 6)
        queue = f"all-{secrets.token_hex(2)}"
        spaces = [f"{queue}-{n}" for n in range(len(ORDERS))]
        async with Witness.of(admin) as witness, contextlib.AsyncExitStack() as running:
            await running.enter_async_context(operator(governed.kubeconfig))
            await admin.create(CLUSTER_QUEUES, {"metadata": {"name": queue}, "spec": {}})
            await asyncio.gather(*(furnish(admin, one, queue) for one in spaces))
            await settled(witness, lambda: of_all(witness, spaces) == 4 * len(spaces))
            if goes == "first":
                await running.aclose()
            deleting = asyncio.gather(
                *(delete(admin, s, order) for s, order in zip(spaces, ORDERS, strict=True))
            )
            if goes == "last":
                await asyncio.sleep(0)
                await running.aclose()
            await deleting
            await until(lambda: all_gone(admin, spaces), WAIT_S)
            await admin.delete(CLUSTER_QUEUES, queue)
            await until(lambda: is_gone(admin, queue))
            assert of_all(witness, spaces) == 0

    runner.run(scenario())


@pytest.mark.parametrize("state", ["up", "down"])
def test_the_definitions_go_first(
    governed: ControlPlane, admin: Api, runner: asyncio.Runner, state: str
) -> None:
    """All Jobs go with their definition; an operator serves the rest, and knows them again."""

    async def scenario() -> None:
        await define(admin)
        with contextlib.suppress(Exception):
            await nodes(admin, 6)
        space = f"defined-{secrets.token_hex(2)}"
        async with contextlib.AsyncExitStack() as running:
            made = await running.enter_async_context(operator(governed.kubeconfig))
            await admin.create(CLUSTER_QUEUES, {"metadata": {"name": space}, "spec": {}})
            await furnish(admin, space, space)
            await until(lambda: count_is(admin, space, 4), WAIT_S)
            if state == "down":
                await running.aclose()
            found, _ = await admin.list(DEFINITIONS)
            ours = [one for one in found if one["spec"]["group"] == JOBS.group]
            for one in ours:
                await admin.delete(DEFINITIONS, one["metadata"]["name"])
            await until(lambda: undefined(admin), WAIT_S)
            if state == "up":
                await until(lambda: count_is(admin, space, 2), WAIT_S)  # the gang is nobody's
                await create(admin, PODS, [pod("proof", namespace=space)])
                await until(lambda: runs_there(admin, space, 3), WAIT_S)
                await define(admin)
                await until(lambda: known_again(made.mirrors[JOBS].trouble), WAIT_S)
                await admin.create(JOBS, job("again", namespace=space), space)
                await until(lambda: runs_there(admin, space, 4), WAIT_S)
        await admin.delete(NAMESPACES, space)
        await until(lambda: all_gone(admin, [space]), WAIT_S)

    runner.run(scenario())


# -- parts of scenarios ----------------------------------------------------------------------------


async def furnish(api: Api, space: str, queue: str) -> None:
    """A namespace with a Queue, a Job of two workers and a gang of two."""
    await api.create(NAMESPACES, {"metadata": {"name": space}})
    await api.create(QUEUES, {"metadata": {"name": "ours"}, "spec": {"clusterQueue": queue}}, space)
    await api.create(JOBS, job("train", namespace=space, workers=2, queue="ours"), space)
    await create(api, PODS, gang("gang", 2, namespace=space))


async def delete(api: Api, space: str, order: tuple[str, ...]) -> None:
    """Delete what a namespace has, in that order, waiting for nothing."""
    for what in order:
        match what:
            case "namespace":
                await api.delete(NAMESPACES, space)
            case "job":
                await api.delete(JOBS, "train", space)
            case _:
                await api.delete(QUEUES, "ours", space)


def of_all(witness: Witness, spaces: list[str]) -> int:
    """How many pods these namespaces have that are bound."""
    here = [one for one in witness.pods if one["metadata"]["namespace"] in spaces]
    return sum(bool(one["spec"].get("nodeName")) for one in here)


async def all_gone(api: Api, spaces: list[str]) -> bool:
    """Whether these namespaces are gone, with all that was in them."""
    found, _ = await api.list(NAMESPACES)
    left = [one for one in found if one["metadata"]["name"] in spaces]
    pods, _ = await api.list(PODS)
    return not left and not [one for one in pods if one["metadata"]["namespace"] in spaces]


async def is_gone(api: Api, name: str) -> bool:
    """Whether a cluster queue is gone."""
    found, _ = await api.list(CLUSTER_QUEUES)
    return not [one for one in found if one["metadata"]["name"] == name]


async def undefined(api: Api) -> bool:
    """Whether no definition of ours is left."""
    found, _ = await api.list(DEFINITIONS)
    return not [one for one in found if one["spec"]["group"] == JOBS.group]


async def count_is(api: Api, space: str, count: int) -> bool:
    """Whether a namespace has so many pods."""
    return len(await there(api, space)) == count


async def runs_there(api: Api, space: str, count: int) -> bool:
    """Whether so many pods of a namespace are bound."""
    return sum(bool(one["spec"].get("nodeName")) for one in await there(api, space)) == count


async def there(api: Api, space: str) -> list[Object]:
    """The pods of a namespace."""
    return (await api.list(PODS, space))[0]


async def known_again(trouble: str) -> bool:
    """Whether a mirror follows again."""
    return not trouble
