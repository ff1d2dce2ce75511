"""The state of things at a glance: the caller's jobs, what is free, how the queues stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from fastapi import APIRouter, Response

from roost.api.jobs import OVER, JobView
from roost.api.portal import AttentionView, FreeView, QueueUseView, SummaryView
from roost.api.schema import decode, encode
from roost.core.reasons import NO_MATCH
from roost.server.accounts import bounds_of
from roost.server.auth import Caller
from roost.server.body import CheckedRoute
from roost.server.context import Context
from roost.server.errors import answers
from roost.server.jobs import Here, Reader, json
from roost.server.visibility import Visibility
from roost.store.rows import JobQuery, JobRow

router = APIRouter(prefix="/api/v1", tags=["summary"], route_class=CheckedRoute)

_WEEK_S = 7 * 86400.0
_RECENT, _FAILED, _LOOKED_AT = 10, 10, 200
#: When somebody should look: a job that waits, or reports nothing new, for so long; devices that
#: work less than this part of the time, of a job that runs for so long.
_WAITS_S, _SILENT_S, _LOW_USE, _SETTLED_S = 3600.0, 1800.0, 0.2, 600.0


@router.get("/summary", response_model=SummaryView, responses=answers(), operation_id="get_summary")
async def get_summary(here: Here, caller: Reader) -> Response:
    """The caller's jobs, those that need a look, what is free, and how the queues stand."""
    now, jobs = here.cluster.now(), here.cluster.store.jobs
    own = Visibility(caller.user, all=False, owner=here.owner)
    ended = JobQuery(users=(caller.user,), ended_after=now - _WEEK_S)
    over = await here.read(lambda: jobs.totals(ended))
    newest = JobQuery(users=(caller.user,), limit=_RECENT)
    recent = await here.read(lambda: jobs.find(newest))
    bounds, use = await bounds_of(here, caller.user)
    waiting = Counter(job.queue for job in here.hub.open_jobs(own) if job.state == "queued")
    visibility = here.visibility(caller)
    queues = here.hub.queues(visibility, await here.cluster.queues())
    view = SummaryView(
        now,
        caller.user,
        caller.role,
        {**here.hub.states(caller.user), **{state: over.states.get(state, 0) for state in _ENDS}},
        tuple(await _attention(here, caller, own, now)),
        tuple(decode(JobView, here.view(caller, row)) for row in recent.items),
        tuple(_free(here.cluster.nodes())),
        tuple(_queue_use(queue, waiting, now) for queue in queues),
        bounds,
        use,
    )
    return json(encode(view))


_ENDS = ("succeeded", "failed", "cancelled")


async def _attention(
    here: Context, caller: Caller, own: Visibility, now: float
) -> list[AttentionView]:
    """Jobs of the caller that somebody should look at, those that failed first."""
    names = [job.id for job in islice(here.hub.open_jobs(own), _LOOKED_AT)]
    failed = JobQuery(
        users=(caller.user,),
        states=("failed",),
        ended_after=now - _WEEK_S,
        sort="-finished_at",
        limit=_FAILED,
    )
    rows = [
        *(await here.read(lambda: here.cluster.store.jobs.find(failed))).items,
        *await here.read(lambda: here.cluster.store.jobs.some(names)),
    ]
    found = (_needs_look(here, row, here.view(caller, row), now) for row in rows)
    return [one for one in found if one is not None]


def _needs_look(
    here: Context, row: JobRow, view: Mapping[str, Any], now: float
) -> AttentionView | None:
    """Why somebody should look at a job; None: there is no need to."""

    def seen(what: Any, text: str, since: float | None) -> AttentionView:
        return AttentionView(row.id, row.name, view["state"], what, text, since)

    state, reason = view["state"], str(view["reason"])
    if state == "failed":
        return seen("failed", reason, row.finished_at)
    if state in OVER:
        return None
    if view["restraint"]:
        return seen("restrained", str(view["restraint"]), None)
    if state == "queued":
        if reason.startswith(NO_MATCH):
            return seen("never", reason, row.submitted_at)
        waits_long = now - row.submitted_at > _WAITS_S
        return seen("waiting-long", reason, row.submitted_at) if waits_long else None
    since = view["running_since"]
    if state != "running" or since is None or now - since < _SETTLED_S:
        return None
    curves, busy = here.cluster.curves, view["busy"]
    moved_at = None if curves is None else curves.moved_at(row.id)
    if moved_at is not None and now - moved_at > _SILENT_S:
        return seen("stuck", "it reports nothing new", moved_at)
    if busy is not None and busy < _LOW_USE:
        return seen("low-use", f"its GPUs are at work {busy:.0%} of the time", since)
    return None


def _free(nodes: Iterable[Mapping[str, Any]]) -> Iterator[FreeView]:
    """Devices of each kind, and how many nobody has."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for node in nodes:
        if node["gpus"]:
            kinds.setdefault(str(node["kind"]), []).append(node)
    for kind, own in sorted(kinds.items()):
        up = [node for node in own if node["state"] == "up"]
        whole = [
            sum(device["healthy"] and not device["jobs"] for device in node["devices"])
            for node in up
        ]
        yield FreeView(
            kind,
            sum(node["gpus"] for node in own),
            sum(node["gpus_free"] for node in up),
            sum(whole),
            max(whole, default=0),
            sum(node["gpus_failed"] for node in own),
            sum(node["gpus"] for node in own if node["state"] != "up"),
            len(own),
        )


def _queue_use(queue: Mapping[str, Any], waiting: Mapping[str, int], now: float) -> QueueUseView:
    since = queue["oldest_at"]
    return QueueUseView(
        queue["id"],
        queue["quota"],
        queue["limit"],
        queue["gpus_used"],
        queue["waiting"],
        waiting.get(queue["id"], 0),
        None if since is None else max(0.0, now - since),
    )
