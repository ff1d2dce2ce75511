"""Figures for Prometheus, read from the cluster when they are asked for.

Nothing is counted on the way except answers of the server itself: by route template, method and
status, so that no request can make up new series.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.types import Scope

from roost import __version__
from roost.core.spec import WHOLE
from roost.core.state import JobState
from roost.server.process_figures import process_figures
from roost.server.visibility import Visibility

if TYPE_CHECKING:
    from roost.server.backend import ClusterBackend
    from roost.server.hub import StreamHub
    from roost.server.streams import OpenStreams

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """What the server counts, and how it is told."""

    def __init__(self, cluster: ClusterBackend, lines: OpenStreams) -> None:
        self._cluster, self._lines = cluster, lines
        # Only the event loop counts and reads, so there is no lock.
        self._answers: Counter[tuple[str, str, str]] = Counter()
        self._answer_s, self._timed = 0.0, 0

    def seen(self, scope: Scope, status: int, passed_s: float) -> None:
        """Count an answer."""
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        if route == "none":
            method = "any"
        self._answers[route, method, str(status or "none")] += 1
        # A stream lasts as long as its client likes: its time says nothing about the server.
        if not route.endswith("/stream"):
            self._answer_s += passed_s
            self._timed += 1

    @property
    def answered(self) -> int:
        """How many requests were answered."""
        return self._answers.total()

    def text(self, visibility: Visibility, hub: StreamHub) -> tuple[bytes, str]:
        """All figures in the text format, and its media type."""
        # A registry for each answer: the library's own one would show every caller all figures.
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Figures(self, visibility, hub))
        return generate_latest(registry), CONTENT_TYPE_LATEST

    def server(self) -> Iterator[Metric]:
        """What the server did."""
        answers = CounterMetricFamily(
            "roost_http_requests", "Answers, by route.", labels=["route", "method", "status"]
        )
        for labels, count in sorted(self._answers.items()):
            answers.add_metric(labels, count)
        yield answers
        yield SummaryMetricFamily(
            "roost_http_request_seconds",
            "Time from request to end of answer, without streams.",
            count_value=self._timed,
            sum_value=self._answer_s,
        )
        yield _gauge("roost_streams_open", "Streams that are open.", len(self._lines))

    def cluster(self) -> Iterator[Metric]:
        """What the cluster did."""
        cluster = self._cluster
        yield from _devices(cluster)
        yield _gauge("roost_journal_seq", "Number of the journal's last entry.", cluster.seq)
        stopped = "1 while no new work is taken."
        yield _gauge("roost_intake_stopped", stopped, float(not cluster.health.ok))
        failing = "1 while the policy fails and jobs are started in order of arrival."
        yield _gauge("roost_policy_failing", failing, float(bool(cluster.health.policy)))
        counts = cluster.counts
        yield _counter("roost_decisions", "Times the core was asked.", counts.decisions)
        yield _counter("roost_journal_appends", "Transactions of the journal.", counts.appends)
        errors = "Transactions of the journal that failed, or with an unknown end."
        yield _counter("roost_journal_append_errors", errors, counts.append_errors)
        yield from _decision_times(cluster)
        yield from _process()


class _Figures(Collector):
    """Everything at one moment, as one caller may see it."""

    def __init__(self, metrics: Metrics, visibility: Visibility, hub: StreamHub) -> None:
        self._metrics, self._eyes, self._hub = metrics, visibility, hub

    def collect(self) -> Iterator[Metric]:
        """All figures."""
        info = GaugeMetricFamily("roost_info", "The version.", labels=["version"])
        info.add_metric([__version__], 1)
        yield info
        yield from self._jobs()
        if self._eyes.all:
            yield from self._metrics.server()
            yield from self._metrics.cluster()

    def _jobs(self) -> Iterator[Metric]:
        jobs: Counter[tuple[str, str]] = Counter()
        waiting: dict[str, float] = {}
        for row in self._hub.open_jobs(self._eyes):
            jobs[row.state, row.queue] += 1
            if row.state == JobState.QUEUED:
                waiting[row.queue] = min(waiting.get(row.queue, row.submitted_at), row.submitted_at)
        family = GaugeMetricFamily(
            "roost_jobs", "Jobs that are not over.", labels=["state", "queue"]
        )
        for labels, count in sorted(jobs.items()):
            family.add_metric(labels, count)
        yield family
        length = GaugeMetricFamily(
            "roost_queue_length", "Jobs that wait, by queue.", labels=["queue"]
        )
        oldest = GaugeMetricFamily(
            "roost_queue_oldest_submitted_timestamp_seconds",
            "When the job that waits longest was submitted, by queue.",
            labels=["queue"],
        )
        for queue, since in sorted(waiting.items()):
            length.add_metric([queue], jobs[JobState.QUEUED.value, queue])
            oldest.add_metric([queue], since)
        yield length
        yield oldest


def _devices(cluster: ClusterBackend) -> Iterator[Metric]:
    names = {
        "capacity": "Devices there are.",
        "allocated": "Devices that jobs hold, counting shares.",
        "failed": "Devices that are not used any more.",
    }
    labels = ["node", "kind"]
    families = {
        name: GaugeMetricFamily(f"roost_gpus_{name}", text, labels=labels)
        for name, text in names.items()
    }
    for node in cluster.core.ledger.nodes.values():
        own = [node.id, node.spec.kind]
        failed = node.spec.gpus - node.healthy.bit_count()
        families["capacity"].add_metric(own, node.spec.gpus)
        # Runs hold thousandths of devices: half a GPU counts as 0.5.
        families["allocated"].add_metric(own, sum(node.runs.values()) / WHOLE)
        families["failed"].add_metric(own, failed)
    yield from families.values()


def _decision_times(cluster: ClusterBackend) -> Iterator[Metric]:
    counts = cluster.counts
    name, text = "roost_decision_seconds", "Time that the core took to decide."
    yield _gauge("roost_decision_slowest_seconds", "The slowest decision.", counts.slowest_s)
    total, buckets = 0, []
    # Buckets of Prometheus are cumulative: each counts all that took at most its bound.
    for bound, count in sorted(counts.buckets.items()):
        total += count
        buckets.append(("+Inf" if math.isinf(bound) else str(bound), float(total)))
    yield HistogramMetricFamily(name, text, buckets=buckets, sum_value=counts.decision_s)


def _process() -> Iterator[Metric]:
    used = process_figures()
    yield _gauge("process_resident_memory_bytes", "Memory of the server.", used.rss_bytes)
    yield _counter("process_cpu_seconds", "CPU time of the server.", used.cpu_s)
    yield _gauge("process_open_fds", "Open files of the server.", used.files)
    yield _gauge("roost_scrape_timestamp_seconds", "Now.", time.time())


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)
