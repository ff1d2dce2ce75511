"""Hypothesis strategies for clusters, jobs and queues, small enough to be read once shrunk.

Needs the ``hypothesis`` package, which Roost itself does not.
"""

from __future__ import annotations

from hypothesis import strategies as st

from roost.core import Costs, JobSpec, Level, NodeSpec, QueueSpec, Resources, Role, Way
from roost.core.spec import CPU_SLOT
from roost.testing.builders import node, queue, role, spec, worker

__all__ = [
    "GPU_MEMORY_MIB",
    "KINDS",
    "POOLS",
    "QUEUES",
    "clusters",
    "nodes",
    "queues",
    "roles",
    "specs",
    "workers",
]

KINDS = ("a", "b")
QUEUES = ("red", "blue")
POOLS = ("p", "q")
GPU_MEMORY_MIB = 1000


@st.composite
def nodes(draw: st.DrawFn, name: str) -> NodeSpec:
    """A machine, with CPUs, memory and device memory counted or not."""
    return node(
        name,
        draw(st.sampled_from((4, 2, 4, 1, 0))),
        kind=draw(st.sampled_from((KINDS[0], *KINDS, CPU_SLOT))),
        gpu_memory_mib=draw(st.sampled_from((0, 0, GPU_MEMORY_MIB))),
        cpu_milli=draw(st.sampled_from((0, 0, 8000))),
        memory_mib=draw(st.sampled_from((0, 0, 800))),
        sockets=draw(st.sampled_from((1, 2))),
        switch=draw(st.sampled_from(("", "s1"))),
        workers=draw(st.sampled_from((0, 0, 0, 3))),
        extras=draw(st.sampled_from(((), (("nic", 2), ("port/*", 1))))),
        mixed=draw(st.sampled_from((True, True, False))),
    )


@st.composite
def clusters(draw: st.DrawFn, most: int = 6) -> list[NodeSpec]:
    """One machine up to a handful."""
    return [draw(nodes(f"n{index}")) for index in range(draw(st.integers(1, most)))]


@st.composite
def workers(draw: st.DrawFn) -> Resources:
    """What a worker needs: nothing but CPUs, a share, or whole devices."""
    return worker(
        draw(st.sampled_from((1, 1, 0.25, 0.5, 2, 0, 0.7))),
        gpu_memory_mib=draw(st.sampled_from((0, 0, 0, 300, 600))),
        kinds=draw(st.sampled_from(((), (), (), ("a",), ("a", "b")))),
        cpu_milli=draw(st.sampled_from((0, 0, 1000, 1500))),
        memory_mib=draw(st.sampled_from((0, 0, 0, 100))),
        way=draw(st.sampled_from(Way)),
        pool=draw(st.sampled_from(("", "", "", *POOLS))),
        extras=draw(st.sampled_from(((), (), (), (("nic", 1),), (("port/80", 1),)))),
    )


@st.composite
def roles(draw: st.DrawFn) -> tuple[Role, ...]:
    """Mostly none; sometimes parameter servers."""
    if draw(st.integers(0, 5)):
        return ()
    return (
        role(
            "ps",
            draw(st.integers(1, 2)),
            draw(st.sampled_from((0, 0.5, 1))),
            cpu_milli=1000,
            way=draw(st.sampled_from(Way)),
            pool=draw(st.sampled_from(("", "", POOLS[0]))),
        ),
    )


@st.composite
def specs(draw: st.DrawFn) -> JobSpec:
    """A job: rigid or elastic, of any queue, with or without an estimate."""
    need = draw(workers())
    low = draw(st.sampled_from((1, 1, 1, 2, 3)))
    high = low + draw(st.sampled_from((0, 2, 0, 1)))
    return spec(
        need.gpus * need.share_milli / 1000,
        draw(st.sampled_from((50.0, 5.0, 500.0, None))),
        workers=(low, high),
        gpu_memory_mib=need.gpu_memory_mib,
        kinds=need.kinds,
        cpu_milli=need.cpu_milli,
        memory_mib=need.memory_mib,
        way=need.way,
        pool=need.pool,
        extras=need.extras,
        roles=draw(roles()),
        queue=draw(st.sampled_from(QUEUES)),
        priority=draw(st.sampled_from((0, 0, 3))),
        user="u",
        application=draw(st.sampled_from(("", "x"))),
        costs=Costs(restart_s=draw(st.sampled_from((0.0, 5.0)))),
        min_run_s=draw(st.sampled_from((0.0, 0.0, 20.0))),
        max_retries=draw(st.integers(0, 2)),
        preemptible=draw(st.sampled_from((True, True, True, False))),
        preempts=draw(st.sampled_from((True, True, True, False))),
        within=draw(st.sampled_from((*(None,) * 5, Level.SOCKET, Level.NODE, Level.SWITCH))),
    )


@st.composite
def queues(draw: st.DrawFn) -> QueueSpec:
    """A tenant, with or without a promise and a cap."""
    limit = draw(st.sampled_from((None, None, 1000, 3000, 8000)))
    quota = draw(st.sampled_from((None, 0, 1000)))
    return queue(
        draw(st.sampled_from(QUEUES)),
        quota_milli=quota,
        limit_milli=limit,
        weight=draw(st.sampled_from((1.0, 2.0))),
        priority=draw(st.sampled_from((0, 0, -3, 3))),
    )
