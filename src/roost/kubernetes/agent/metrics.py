"""Health and figures of an agent, over HTTP.

/healthz   the process is alive and its loop turns
/readyz    the kubelet that runs now knows the devices
/metrics   figures for Prometheus, read when they are asked for
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from roost.core.spec import WHOLE

if TYPE_CHECKING:
    from roost.kubernetes.agent.agent import NodeAgent

_POD = ("namespace", "pod", "gpu")


class AgentServer(Collector):
    """Serves what an agent says of itself."""

    def __init__(self, agent: NodeAgent) -> None:
        self._agent = agent
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._runner: web.AppRunner | None = None

    async def start(self, port: int) -> None:
        """Listen everywhere."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, None, port).start()

    async def stop(self) -> None:
        """Listen no longer."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        if self._agent.ready:
            return web.Response(text="the kubelet knows the devices\n")
        return web.Response(status=503, text="the kubelet does not know the devices yet\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE_LATEST}
        return web.Response(body=generate_latest(self._registry), headers=headers)

    def collect(self) -> Iterator[Metric]:
        """All figures as of now."""
        findings = self._agent.findings()
        faults = GaugeMetricFamily(
            "roost_agent_gpu_unhealthy", "Whether a GPU failed.", labels=["gpu"]
        )
        for gpu in range(findings.gpus):
            faults.add_metric([str(gpu)], int(gpu in findings.faults))
        yield faults
        held = GaugeMetricFamily("roost_agent_shares_held", "Whether shares can be held.")
        held.add_metric([], int(not findings.unheld))
        yield held
        yield from self._tenants()

    def _tenants(self) -> Iterator[Metric]:
        share = GaugeMetricFamily("roost_agent_share", "The part of a GPU of a pod.", labels=_POD)
        suspended = GaugeMetricFamily(
            "roost_agent_suspended", "Whether a pod is off its GPU.", labels=_POD
        )
        problem = GaugeMetricFamily(
            "roost_agent_problem", "Whether a share of a pod is not held.", labels=_POD
        )
        busy = GaugeMetricFamily(
            "roost_agent_busy", "The part of the time in which a pod has its GPU work.", labels=_POD
        )
        memory = GaugeMetricFamily(
            "roost_agent_memory_mib", "GPU memory that a pod holds.", labels=_POD
        )
        for one in self._agent.tenants.standings():
            labels = [one.namespace, one.pod, ",".join(map(str, one.gpus))]
            share.add_metric(labels, one.share_milli / WHOLE)
            suspended.add_metric(labels, int(one.suspended))
            problem.add_metric(labels, int(bool(one.problem)))
            if one.use is not None:
                busy.add_metric(labels, one.use.busy)
                if one.use.memory_mib is not None:
                    memory.add_metric(labels, one.use.memory_mib)
        yield from (share, suspended, problem, busy, memory)
