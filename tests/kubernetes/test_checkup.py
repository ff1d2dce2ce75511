"""Faults of a real cluster: each is one line of ``roost kubernetes check``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.kubernetes.jobbing import define, job, jobbing, reaches, status
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import nodes, until

from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import (
    CLUSTER_QUEUES,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    ResourceKind,
)

HOOKS = ResourceKind(
    *("admissionregistration.k8s.io", "v1"),
    *("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
    namespaced=False,
)
#: A webhook for pods at an address where nobody listens.
SILENT: dict[str, Any] = {
    "metadata": {"name": "silent"},
    "webhooks": [
        {
            "name": "pods.example.org",
            "clientConfig": {"url": "https://127.0.0.1:9/"},
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["pods"],
                }
            ],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 1,
        }
    ],
}


@pytest.fixture
def check(cluster: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The lines that the command prints for the administrator."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))

    async def lines() -> list[str]:
        program = Path(sys.executable).with_name("roost")
        words = ("kubernetes", "check", "-n", "default")
        process = await asyncio.create_subprocess_exec(
            program, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await process.communicate()
        assert b"Traceback" not in said
        return said.decode().splitlines()

    return lines


def test_each_fault_is_a_line_and_gone_when_it_is_mended(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner, check: Any
) -> None:
    async def story() -> None:
        await define(api)
        await nodes(api, 1, gpus=4)
        assert await check() == ["nothing is lacking"]
        await api.patch(NODES, "node-0000", {"metadata": {"labels": {"roost.dev/gpus-as": "half"}}})
        for name, parent in (("a", "b"), ("b", "a")):
            spec = {"parent": parent, "quota": 1}
            await api.create(CLUSTER_QUEUES, {"metadata": {"name": name}, "spec": spec})
        await api.create(HOOKS, SILENT)
        await until(silent)
        lines = await check()
        assert [line.partition("  ")[2].partition("  ")[0] for line in lines] == [
            *("webhook pods.example.org", "node node-0000", "clusterqueue a", "clusterqueue b"),
        ]
        async with jobbing(cluster):
            await api.create(JOBS, job("birds"))
            await until(lambda: told("birds"))
            assert await check() == lines  # and one operator is no fault, nor its clock
            await api.delete(HOOKS, "silent")
            await reaches(api, "birds", "running", 120)

    async def silent() -> bool:
        return any("webhook" in line for line in await check())

    async def told(name: str) -> bool:
        return "pods.example.org" in str((await status(api, name)).get("reason"))

    runner.run(story())


def test_two_operators_are_told(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner, check: Any
) -> None:
    async def story() -> None:
        await define(api)
        await api.create(NAMESPACES, {"metadata": {"name": "other"}})
        async with jobbing(cluster), jobbing(cluster, namespace="other"):
            assert len((await api.list(LEASES, labels="roost.dev/component=operator"))[0]) == 2
            (line,) = await check()
            assert "both place pods of all namespaces" in line

    runner.run(story())
