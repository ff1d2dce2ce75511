"""``roost top``: what nodes, jobs and queues use now."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from roost.cli import connection
from roost.cli.output import table_lines
from roost.cli.parameter_types import Verb, option
from roost.errors import RoostError

if TYPE_CHECKING:
    from roost.client import Client

_SAMPLE_S = 0.5
_REDRAW_S = 2.0
_GIB = 1024**3
#: The most waiting jobs that are looked at one by one.
_COUNTED = 200


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost top
  roost top job
  roost top queue -w""",
)
@click.argument("what", type=click.Choice(["node", "job", "queue"]), default="node", required=False)
@option("-w", "--watch", section="Output", is_flag=True, help="Go on showing it.")
@connection.output_option
def top(what: str, watch: bool, output: str) -> None:  # noqa: FBT001 - click passes flags
    """Say how full the nodes are, what jobs use, or how the queues stand."""
    with connection.connect() as client:
        if watch and sys.stdout.isatty() and output not in ("json", "yaml"):
            _watch(client, what)
            return
        _tell(client, what, output)
        while watch:  # through a pipe, one after the other
            time.sleep(_REDRAW_S)
            click.echo("---" if output == "yaml" else "")
            _tell(client, what, output)


def _tell(client: Client, what: str, output: str) -> None:
    if output in ("json", "yaml"):
        asked: dict[str, Callable[[], Any]] = {
            "queue": client.queues,
            "node": client.nodes,
            "job": client.top,
        }
        connection.printed(asked[what](), output)
        return
    for line in _lines(client, what):
        click.echo(line)


def _watch(client: Client, what: str) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(), screen=True, auto_refresh=False) as live:
        while True:
            lines = [*_lines(client, what), "Ctrl-C ends"]
            live.update(Text.from_ansi("\n".join(lines)), refresh=True)
            time.sleep(_REDRAW_S)


def _lines(client: Client, what: str) -> Iterator[str]:
    if what == "queue":
        yield from queue_lines(client.queues())
    elif what == "job":
        yield from _job_lines(client)
    else:
        yield from node_lines(client.nodes())
        yield from _trouble_lines(client)
        waiting = client.page(state="queued", limit=_COUNTED)
        if waiting.total:
            from roost.client.formatting import count, gpus

            # What a long queue asks for would take many pages to add up.
            asked = f", {gpus(sum(view.gpus for view in waiting))}"
            few = waiting.total <= _COUNTED
            yield f"waiting: {count(waiting.total, 'job')}{asked if few else ''}"


def _trouble_lines(client: Client) -> Iterator[str]:
    """What is wrong with the server as a whole."""
    from roost.client.formatting import clean

    try:
        health = client.health()
    except RoostError:
        return  # an older server, or one that does not tell this user
    for key, label in (
        ("why", "nothing is accepted"),
        ("policy", "attention"),
        ("clock", "attention"),
    ):
        if health.get(key):
            yield f"{label}: {clean(str(health[key]))}"


def node_lines(nodes: list[dict[str, Any]]) -> Iterator[str]:
    """Nodes as a table, and how full they are together."""
    from roost.client.formatting import amount, clean, clock

    rows = []
    for node in nodes:
        total, failed = float(node.get("gpus", 0)), float(node.get("gpus_failed", 0))
        jobs = dict.fromkeys(
            str(job.get("job") or "")
            for device in node.get("devices", ())
            for job in device.get("jobs", ())
        )
        named = [clean(job) for job in jobs if job]
        rows.append(
            {
                "node": clean(node.get("id", "")),
                "state": clean(node.get("state", "")),
                "kind": clean(node.get("kind", "")),
                "gpus": f"{amount(_used(node))}/{amount(total)}",
                "failed": amount(failed) if failed else "-",
                "cpus": amount(float(node.get("cpus", 0))),
                "memory": f"{float(node.get('memory_mib', 0)) / 1024:.0f} GiB",
                "jobs": " ".join(named) if len(named) < 5 else f"{len(named)} jobs",  # noqa: PLR2004
            }
        )
    yield from table_lines(connection.fitted(rows, wide=False), connection.paint)
    for node in nodes:
        if notice := node.get("notice"):
            yield f"{clean(node.get('id', ''))} {clean(node.get('state', ''))}{noticed(notice)}"
        for window in node.get("maintenance", ()):
            span = f"{clock(window.get('starts_at'))} to {clock(window.get('ends_at'))}"
            reason = f": {clean(window['reason'])}" if window.get("reason") else ""
            yield f"{clean(node.get('id', ''))} maintenance from {span}{reason}"
        for device in node.get("devices", ()):
            if notice := device.get("notice"):
                how = "disabled" if notice.get("user") else "failed"
                place = f"{clean(node.get('id', ''))}:{device.get('index')}"
                yield f"{place} {how}{noticed(notice)}"
    used = sum(map(_used, nodes))
    total = sum(float(node.get("gpus", 0)) for node in nodes)
    part = f" ({100 * used / total:.0f} %)" if total else ""
    yield f"GPUs allocated/total: {amount(used)}/{amount(total)}{part}"


def _used(node: dict[str, Any]) -> float:
    """GPUs that are allocated; of a node that takes nothing new none is free, used or not."""
    if node.get("notice"):
        shares = ([float(job.get("share", 1)) for job in d["jobs"]] for d in node["devices"])
        return sum(min(1.0, sum(held)) for held in shares)
    total, free, failed = (float(node.get(key, 0)) for key in ("gpus", "gpus_free", "gpus_failed"))
    return max(0.0, total - failed - free)


def noticed(notice: dict[str, Any]) -> str:
    """Who took something out of service, when and why, behind what it is."""
    from roost.client.formatting import clean, clock

    by = f" by {clean(notice['user'])}" if notice.get("user") else ""
    reason = f": {clean(notice['reason'])}" if notice.get("reason") else ""
    return f"{by} since {clock(float(notice.get('since', 0)))}{reason}"


def queue_lines(queues: list[dict[str, Any]]) -> Iterator[str]:
    """Queues as a table, and how many jobs wait in all of them."""
    from roost.client.formatting import amount, clean, count

    def gpus(value: Any) -> str:
        return "-" if value is None else amount(float(value))

    def cells(queue: dict[str, Any]) -> dict[str, str]:
        if not any(one.get("cells") for one in queues):
            return {}
        standing = {one.get("promise"): one for one in queue.get("standing", ())}
        told = (_cell(clean(text), standing.get(text)) for text in queue.get("cells", ()))
        return {"cells": ", ".join(told) or "-"}

    yield from table_lines(
        [
            {
                "queue": clean(queue.get("id", "")),
                "gpus": f"{gpus(queue.get('gpus_used', 0))}/{gpus(queue.get('quota'))}",
                "limit": gpus(queue.get("limit")),
                **cells(queue),
                "weight": f"{float(queue.get('weight', 1)):g}",
                "priority": str(queue.get("priority", 0)),
                "running": _count(queue.get("running")),
                "waiting": _count(queue.get("waiting")),
                "submitters": " ".join(map(clean, queue.get("submitters", ()))),
            }
            for queue in queues
        ]
    )
    waiting = sum(int(queue.get("waiting") or 0) for queue in queues)
    many = count(len(queues), "queue")
    yield f"{many}, {count(waiting, 'job')} waiting; GPUs are used/promised"


def _cell(promise: str, standing: dict[str, Any] | None) -> str:
    """A promise of cells with how many are used, and how many are broken."""
    if standing is None:
        return promise
    broken = f", {standing['broken']} broken" if standing.get("broken") else ""
    return f"{promise} ({standing.get('used', 0)} used{broken})"


def _job_lines(client: Client) -> Iterator[str]:
    """The usage of jobs' processes; processor time is counted between two samples."""
    from roost.client.formatting import amount, clean, count

    before, began = {job["job"]: job for job in client.top()["jobs"]}, time.monotonic()
    time.sleep(_SAMPLE_S)
    used = client.top()["jobs"]
    passed = time.monotonic() - began
    views = {view.id: view for view in client.jobs(state=["running", "resizing", "suspended"])}
    rows = []
    for job in used:
        view, earlier = views.get(job["job"]), before.get(job["job"], job)
        busy = max(0.0, job["cpu_s"] - earlier["cpu_s"]) / passed
        rows.append(
            {
                "job": clean(job["job"]),
                "state": clean(view.state) if view else "-",
                "gpus": amount(view.gpus_held) if view else "-",
                "share": amount(view.share) if view else "-",
                "cpus": f"{busy:.1f}",
                "memory": _memory(job["rss_bytes"]),
                "processes": str(job["processes"]),
                "done": "-"
                if view is None or view.progress is None
                else f"{100 * view.progress:.0f}%",
            }
        )
    yield from table_lines(rows, connection.paint)
    memory = _memory(sum(job["rss_bytes"] for job in used))
    yield f"{count(len(used), 'job')} on devices, {memory}"


def _memory(size: float) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size * 1024 / _GIB:.0f} MiB"


def _count(value: Any) -> str:
    return "-" if value is None else f"{int(value):,}"
