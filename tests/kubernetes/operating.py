"""An operator within a test, and what tests ask of a cluster that it schedules."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import pod, until

from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import NODES, PODS, Object
from roost.kubernetes.objects.needs import needs
from roost.kubernetes.objects.pods import devices_of, is_bound, is_over
from roost.kubernetes.operator.loop import Operator, OperatorOptions
from roost.kubernetes.operator.workload import SourceFactory

#: What happens while an operator leads, and what lets it happen.
Scenario = Callable[[Api], Coroutine[Any, Any, None]]
Play = Callable[[Scenario], None]
GROUP, SIZE = "roost.dev/group", "roost.dev/group-size"


@contextlib.asynccontextmanager
async def operating(
    plane: ControlPlane,
    sources: Sequence[SourceFactory] = (),
    kubeconfig: Path | None = None,
    **options: Any,
) -> AsyncIterator[Operator]:
    """An operator that leads, with a connection of its own."""
    api = await Api.connect(kubeconfig=str(kubeconfig or plane.kubeconfig))
    operator = Operator(api, OperatorOptions(**{"metrics_port": None, **options}), sources)
    task = asyncio.create_task(operator.run())
    try:
        await until(lambda: _leads(operator, task), 60)
        yield operator
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await api.close()


async def _leads(operator: Operator, task: asyncio.Task[None]) -> bool:
    if task.done():
        await task
    return operator.leadership is not None and operator.leadership.settled


def gang(name: str, size: int, **given: Any) -> list[Object]:
    """Pods that say themselves that they belong together."""
    notes = {GROUP: name, SIZE: str(size), **given.pop("annotations", {})}
    return [pod(f"{name}-{n}", annotations=notes, **given) for n in range(size)]


async def pods(api: Api, **where: Any) -> list[Object]:
    """All pods."""
    return (await api.list(PODS, **where))[0]


async def bound(api: Api, count: int) -> list[Object]:
    """All pods, if so many of them are bound."""
    found = await pods(api)
    return found if sum(map(is_bound, found)) >= count else []


def by_gang(found: Iterable[Object]) -> dict[str, tuple[int, int]]:
    """Of each gang, how many pods are bound and how many there are."""
    have: Counter[str] = Counter()
    want: Counter[str] = Counter()
    for one in found:
        name = one["metadata"]["annotations"].get(GROUP, one["metadata"]["name"])
        want[name] += 1
        have[name] += is_bound(one)
    return {name: (have[name], count) for name, count in want.items()}


async def over_committed(api: Api) -> list[str]:
    """Nodes on which pods take more than there is, and devices that are taken twice."""
    nodes, _ = await api.list(NODES)
    wrong = []
    on: dict[str, list[Object]] = {}
    for one in await pods(api):
        if is_bound(one) and not is_over(one):
            on.setdefault(one["spec"]["nodeName"], []).append(one)
    for node in nodes:
        name = node["metadata"]["name"]
        wrong += _faults(name, node["status"]["allocatable"], on.get(name, []))
    return wrong


def _faults(name: str, allocatable: Mapping[str, str], found: list[Object]) -> list[str]:
    taken: Counter[int] = Counter()
    asked = [(one, needs(one).resources) for one in found]
    wrong = []
    gpus = sum(need.gpu_milli for _, need in asked)
    if gpus > 1000 * int(allocatable.get("nvidia.com/gpu", "0")):
        wrong.append(f"{name}: {gpus} milli-GPUs are taken")
    if sum(need.cpu_milli for _, need in asked) > 1000 * int(allocatable["cpu"]):
        wrong.append(f"{name}: too many CPUs are taken")
    for one, need in asked:
        for device in devices_of(one):
            taken[device] += need.share_milli
    wrong += [f"{name}: device {gpu} has {milli}" for gpu, milli in taken.items() if milli > 1000]
    return wrong
