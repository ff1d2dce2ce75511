"""A control plane for each worker of pytest, clean for each test.

A test is a plain function that runs coroutines with ``runner.run(...)``; ``api`` belongs to that
runner's loop. ``cluster`` is the control plane, wiped before the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kubernetes.operating import Play, Scenario, operating
from tests.support.kubernetes.control_plane import ControlPlane

from roost.errors import NotFound
from roost.kubernetes.client.api import Api

#: Users without rights, for tests that grant them some.
USERS = ("alice", "bob", "operator", "viewer")


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, an API server and KWOK, once for all tests of this process."""
    folder: Path = tmp_path_factory.mktemp("control-plane")
    plane = ControlPlane(folder, users=dict.fromkeys(USERS, ("people",)))
    try:
        asyncio.run(plane.start())
    except NotFound as error:
        pytest.skip(str(error))
    yield plane
    asyncio.run(plane.stop())


@pytest.fixture
def cluster(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with nothing in it but what it makes itself."""
    asyncio.run(control_plane.wipe())
    return control_plane


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of one test."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def api(cluster: ControlPlane, runner: asyncio.Runner) -> Iterator[Api]:
    """The administrator's connection to the clean cluster."""
    api = runner.run(Api.connect(kubeconfig=str(cluster.kubeconfig)))
    yield api
    runner.run(api.close())


@pytest.fixture
def play(cluster: ControlPlane, api: Api, runner: asyncio.Runner) -> Play:
    """Runs a scenario while an operator leads."""

    def played(scenario: Scenario) -> None:
        async def all_of_it() -> None:
            async with operating(cluster):
                await scenario(api)

        runner.run(all_of_it())

    return played
