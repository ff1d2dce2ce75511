"""Jobs, namespaces and definitions deleted in every order, with Kubernetes' own garbage collector:
nothing is left, and nothing stays Terminating."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from tests.kubernetes.jobbing import DEFINITIONS, define, job, jobbing
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import nodes, until

from roost.errors import NotFound
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import CONFIG_MAPS, JOBS, NAMESPACES, PODS, SERVICES

SPACES = ("by-job", "foreground", "by-space", "down", "definition")


async def _make(api: Api) -> None:
    for space in SPACES:
        await api.create(
            NAMESPACES,
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}},
        )
        await api.create(JOBS, job("train", namespace=space, workers=2), space)


async def _running(api: Api, space: str) -> bool:
    found = await api.get(JOBS, "train", space)
    return (found.get("status") or {}).get("state") == "running"


async def _left(api: Api, space: str) -> list[str]:
    found = []
    for kind in (PODS, SERVICES, CONFIG_MAPS):
        items, _ = await api.list(kind, space)
        names = [one["metadata"]["name"] for one in items]
        found += [f"{kind.kind} {name}" for name in names if name != "kube-root-ca.crt"]
    return found


async def _nothing(api: Api, space: str) -> bool:
    return not await _left(api, space)


async def _no_space(api: Api, space: str) -> bool:
    try:
        await api.get(NAMESPACES, space)
    except NotFound:
        return True
    return False


def test_deletions_in_every_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        plane = ControlPlane(tmp_path, controller_manager=True)
        await plane.start()
        api = await Api.connect(kubeconfig=str(plane.kubeconfig))
        try:
            await define(api)
            await nodes(api, 2, gpus=8)
            async with jobbing(plane):
                await _make(api)
                for space in SPACES:
                    await until(partial(_running, api, space), 40)
                await api.delete(JOBS, "train", "by-job")
                await api.delete(JOBS, "train", "foreground", propagation="Foreground")
                await api.delete(NAMESPACES, "by-space")
                await until(lambda: _nothing(api, "by-job"), 60)
                await until(lambda: _nothing(api, "foreground"), 60)
                await until(lambda: _no_space(api, "by-space"), 60)
            # Nobody operates any more: Kubernetes alone cleans up.
            await api.delete(NAMESPACES, "down")
            await until(lambda: _no_space(api, "down"), 60)
            async with jobbing(plane):
                await until(lambda: _running(api, "definition"), 40)
                await api.delete(DEFINITIONS, "jobs.roost.dev")
                await until(lambda: _nothing(api, "definition"), 60)
        finally:
            await api.close()
            await plane.stop()

    asyncio.run(scenario())
