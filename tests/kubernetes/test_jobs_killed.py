"""An operator that is killed between any two requests: no worker is ever there twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.kubernetes.jobbing import SPACE, all_gone, define, job, patched, pods, reaches
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import nodes, until

from roost.failpoints import ON_KUBERNETES
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS

_SCRIPT = Path(__file__).with_name("operator_alone.py")
#: In the midst of a gang, and once more when it goes on after it was suspended.
_STARTING = (
    *(f"{name}:2" for name in ON_KUBERNETES if "remove" not in name),
    *("pods.before-objects:1", "status.after-write:1"),
)
_LEAVING = tuple(name for name in ON_KUBERNETES if "remove" in name or "status" in name)


@contextlib.asynccontextmanager
async def alone(plane: ControlPlane, point: str = "") -> AsyncIterator[asyncio.subprocess.Process]:
    """An operator of its own, that dies at a point."""
    environ = {**os.environ, **({"ROOST_FAILPOINT": point} if point else {})}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(_SCRIPT),
        str(plane.kubeconfig),
        env=environ,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _per_rank(api: Api, name: str) -> Counter[str]:
    return Counter(
        "/".join(
            pod["metadata"]["labels"][f"roost.dev/{key}"] for key in ("attempt", "role", "index")
        )
        for pod in await pods(api, name)
    )


@pytest.mark.parametrize("point", _STARTING)
def test_killed_while_a_job_starts(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner, point: str
) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 2, gpus=2)
        async with alone(cluster, point) as process:
            await api.create(JOBS, job("train", workers=3), SPACE)
            if point == "pods.before-objects:2":
                await reaches(api, "train", "running", 30)
                await patched(api, "train", spec={"suspend": True})
                await reaches(api, "train", "suspended")
                await patched(api, "train", spec={"suspend": False})
            await asyncio.wait_for(process.wait(), 60)
        async with alone(cluster):
            found = await reaches(api, "train", "running", 30)
            assert found["failures"] == 0
            assert sorted((await _per_rank(api, "train")).items()) == [
                (f"{found['attempt']}/worker/{n}", 1) for n in range(3)
            ]
            made = await pods(api, "train")
            assert sorted(pod["spec"]["nodeName"] for pod in made).count("node-0000") in (1, 2)

    runner.run(scenario())


@pytest.mark.parametrize("point", _LEAVING)
def test_killed_while_a_job_leaves(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner, point: str
) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 2, gpus=2)
        await api.create(JOBS, job("train", workers=3), SPACE)
        async with alone(cluster):
            await reaches(api, "train", "running", 30)
        async with alone(cluster, point) as process:
            await patched(api, "train", metadata={"annotations": {"roost.dev/cancel": "ada"}})
            await asyncio.wait_for(process.wait(), 60)
        async with alone(cluster):
            found = await reaches(api, "train", "cancelled", 30)
            assert found["attempt"] == 1
            await until(lambda: all_gone(api, "train"))

    runner.run(scenario())
