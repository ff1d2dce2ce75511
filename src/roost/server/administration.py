"""For administrators: who did what, and the health of the server itself."""

from __future__ import annotations

import os
import time
from typing import Annotated

from fastapi import APIRouter, Query, Response

from roost import __version__
from roost.api.portal import AuditPage, DecisionsView, ServerView
from roost.api.schema import encode
from roost.server.auth import Caller
from roost.server.body import CheckedRoute
from roost.server.context import Context
from roost.server.errors import answers
from roost.server.jobs import Here, Limit, json
from roost.server.permissions import needs
from roost.server.process_figures import process_figures
from roost.server.roles import RoutePermission
from roost.store.rows import AuditQuery, EventRow

router = APIRouter(prefix="/api/v1", tags=["administration"], route_class=CheckedRoute)

_ID = r"^([0-9]{1,18}-[0-9]{1,18})?$"


@router.get("/audit", response_model=AuditPage, responses=answers(), operation_id="list_audit")
async def list_audit(  # noqa: PLR0913 - one parameter per filter
    here: Here,
    caller: Annotated[Caller, needs(RoutePermission.ACCOUNTS_READ)],
    *,
    actor: Annotated[str, Query(max_length=80)] = "",
    kind: Annotated[str, Query(max_length=80)] = "",
    q: Annotated[str, Query(max_length=200)] = "",
    before: Annotated[str, Query(pattern=_ID)] = "",
    limit: Limit = 50,
) -> Response:
    """What people did, the newest first; ``next`` is the ``before`` of the page after it."""
    seq, _, n = before.partition("-")
    place = (int(seq), int(n)) if before else None
    query = AuditQuery(actor, kind, tuple(q.split()), place, limit)
    rows = await here.read(lambda: here.cluster.store.events.audit(query))
    visibility = here.visibility(caller)
    following = _id(rows[-1]) if len(rows) == limit else None
    return json({"items": [visibility.event(row) for row in rows], "next": following})


def _id(row: EventRow) -> str:
    return f"{row.seq}-{row.n}"


@router.get("/server", response_model=ServerView, responses=answers(), operation_id="get_server")
async def get_server(
    here: Here, _caller: Annotated[Caller, needs(RoutePermission.CLUSTER_READ)]
) -> Response:
    """The health of the server itself."""
    return json(encode(await here.read(lambda: _server(here))))


def _server(here: Context) -> ServerView:
    cluster, process = here.cluster, process_figures()
    health, counts, store = cluster.health, cluster.counts, cluster.store
    return ServerView(
        version=__version__,
        up_s=time.monotonic() - here.began_at,
        pid=os.getpid(),
        rss_bytes=process.rss_bytes,
        cpu_s=process.cpu_s,
        fds=process.files,
        fds_most=process.most_files,
        ok=health.ok,
        why=health.why,
        policy=cluster.policy_name,
        policy_fails=health.policy,
        placer=cluster.placer_name,
        store=store.kind,
        store_bytes=store.size_bytes(),
        disk_free_bytes=store.free_bytes(),
        journal_seq=cluster.seq,
        append_errors=counts.append_errors,
        decisions=DecisionsView(
            counts.decisions,
            counts.decision_s / counts.decisions if counts.decisions else 0.0,
            counts.slowest_s,
        ),
        streams=len(here.streams),
        viewers=here.hub.viewers,
        encoded=here.hub.encoded,
        ticks=here.hub.ticks,
        requests=here.metrics.answered,
        jobs_open=here.hub.jobs,
        clock=health.clock,
    )
