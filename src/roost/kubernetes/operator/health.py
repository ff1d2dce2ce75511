"""Health and figures of an operator, over HTTP.

/healthz   the process is alive and its loop turns
/readyz    all objects were mirrored once: it leads, or could
/metrics   figures for Prometheus, read when they are asked for
"""

from __future__ import annotations

import resource
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from roost import __version__
from roost.core.spec import WHOLE
from roost.jobs.health import BOUNDS_S

if TYPE_CHECKING:
    from roost.kubernetes.operator.leadership import Leadership
    from roost.kubernetes.operator.loop import Operator

_KIB = 1024


class HealthServer(Collector):
    """Serves what an operator says of itself."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._runner: web.AppRunner | None = None
        #: The port it listens on, once it does.
        self.port = 0

    async def start(self, port: int) -> None:
        """Listen everywhere; without a port in mind, on a free one for this machine alone."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, None if port else "127.0.0.1", port)
        await site.start()
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Listen no longer."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        operator = self._operator
        if operator.late:
            late = [kind.resource for kind in operator.late]
            return web.Response(status=503, text=f"not mirrored yet: {', '.join(late)}\n")
        if operator.leader.leads:
            leadership = operator.leadership
            if leadership is None or not leadership.settled:
                return web.Response(status=503, text="is taking over\n")
            return web.Response(text="; ".join(["leads", *_remarks(operator, leadership)]) + "\n")
        return web.Response(text="follows\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE_LATEST}
        return web.Response(body=generate_latest(self._registry), headers=headers)

    # -- figures ---------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        """All figures as of now."""
        operator = self._operator
        yield _gauge("roost_info", "The version of Roost.", 1, {"version": __version__})
        yield _gauge("roost_leading", "Whether this replica leads.", int(operator.leader.leads))
        yield from self._mirrors()
        bindings = CounterMetricFamily(
            "roost_writes",
            "Requests that change something, by what became of them.",
            labels=["fate"],
        )
        for fate, count in sorted(operator.binder.counts.items()):
            bindings.add_metric([fate], count)
        yield bindings
        usage = resource.getrusage(resource.RUSAGE_SELF)
        peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else _KIB)
        yield _gauge("roost_peak_memory_bytes", "The most memory that was ever used.", peak)
        if operator.leadership is not None:
            yield from _of_leadership(operator.leadership)

    def _mirrors(self) -> Iterator[Metric]:
        stale = GaugeMetricFamily(
            "roost_mirror_stale_seconds", "Since the server was last heard.", labels=["kind"]
        )
        objects = GaugeMetricFamily("roost_mirror_objects", "Mirrored objects.", labels=["kind"])
        for kind, mirror in self._operator.mirrors.items():
            stale.add_metric([kind.resource], mirror.stale_s)
            objects.add_metric([kind.resource], len(mirror.objects))
        yield stale
        yield objects


def _remarks(operator: Operator, leadership: Leadership) -> Iterator[str]:
    """What an administrator should know of an operator that leads."""
    trouble = leadership.reconciler.policy.trouble
    if trouble is not None:
        yield trouble.text
    for name in operator.options.namespaces:
        if why := operator.left_alone(name):
            yield f"namespace {name} is left alone: {why}"
    if unknown := leadership.reconciler.nodes.unknown:
        yield f"{len(unknown)} nodes are not used: pods of other namespaces cannot be listed"


def _of_leadership(leadership: Leadership) -> Iterator[Metric]:
    core, counts = leadership.core, leadership.counts
    total, buckets = 0, []
    for bound in BOUNDS_S:
        total += counts.buckets[bound]
        buckets.append(("+Inf" if bound == float("inf") else str(bound), total))
    decisions = HistogramMetricFamily("roost_decision_seconds", "How long decisions take.")
    decisions.add_metric([], buckets, counts.decision_s)
    yield decisions
    yield from _jobs(leadership)
    ledger = core.ledger
    yield _gauge("roost_gpus_capacity", "Devices in service.", ledger.capacity_milli / WHOLE)
    yield _gauge("roost_gpus_free", "Devices that nobody holds.", ledger.free_milli / WHOLE)
    yield _gauge("roost_nodes", "Nodes in service.", ledger.up.bit_count())
    yield _gauge(
        "roost_nodes_shunned",
        "Nodes whose books do not add up.",
        leadership.reconciler.nodes.closed,
    )
    yield _gauge(
        "roost_pools", "Sets of nodes that pods ask for.", len(leadership.reconciler.pools)
    )


def _jobs(leadership: Leadership) -> Iterator[Metric]:
    core = leadership.core
    counted = Counter((job.state.value, job.spec.queue) for job in core.jobs.values())
    jobs = GaugeMetricFamily("roost_jobs", "Jobs by state.", labels=["state", "queue"])
    for (state, queue), count in sorted(counted.items()):
        jobs.add_metric([state, queue], count)
    yield jobs
    waiting = Counter(job.spec.queue for line in core.waiting.open for _, _, job in line.entries)
    length = GaugeMetricFamily("roost_queue_length", "Jobs that wait.", labels=["queue"])
    for queue, count in sorted(waiting.items()):
        length.add_metric([queue], count)
    yield length


def _gauge(
    name: str, text: str, value: float, labels: dict[str, str] | None = None
) -> GaugeMetricFamily:
    found = GaugeMetricFamily(name, text, labels=list(labels or ()))
    found.add_metric(list((labels or {}).values()), value)
    return found
