"""Every route of the REST API as a conversation: what is asked, and what the answer means.

``clients`` and ``handles`` offer these as methods, blocking and awaitable; their signatures and
docstrings are the ones here.
"""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from roost.client import views
from roost.client.conversations import (
    PATIENCE_S,
    Emit,
    Items,
    Pause,
    RestRequest,
    Steps,
    ask,
    get,
    part,
)
from roost.client.views import (
    EventView,
    JobView,
    Page,
    SnapshotView,
    event_view,
    items_of,
    job_page,
    job_view,
)
from roost.errors import Fatal, InvalidSpec, Retryable

#: An answer that is handed on as it is.
Json = dict[str, Any]

_PAGE = 200
#: Filters that pages have, and counts have not.
_OF_PAGES = frozenset({"sort", "offset", "limit"})
_UNDER_WAY = 202
_FIRST_LOOK_S, _LAST_LOOK_S = 0.05, 1.0


class Filters(TypedDict, total=False):
    """Which jobs: of these states, users and queues, with that in their name, with these labels.

    ``q`` are words: each is in the id, name, user, queue or a label of a job.
    Without ``user``, or with ``"all"``, those of everybody, as far as the caller may see them.
    """

    state: str | Sequence[str]
    user: str | Sequence[str]
    queue: str | Sequence[str]
    name: str
    label: str | Sequence[str]
    q: str
    sort: str
    offset: int
    limit: int


def whoami() -> Steps[Json]:
    """The user and role of this client, as the server knows it."""
    told = _json((yield from ask(get("/whoami"))).json())
    if not isinstance(told.get("user"), str):
        raise Fatal("the server's answer names no user; is that a Roost server?")
    return told


def health() -> Steps[Json]:
    """Whether the server takes new work, and whether its policy works."""
    return _json((yield from ask(get("/health"))).json())


def status(job: str) -> Steps[JobView]:
    """A job as it is now."""
    return job_view((yield from ask(get(f"/jobs/{part(job)}"))).json())


def page(**filters: Unpack[Filters]) -> Steps[Page[JobView]]:
    """A part of the list of jobs, the newest first unless ``sort`` says otherwise."""
    return job_page((yield from ask(get("/jobs", _asked(filters)))).json())


def counts(**filters: Unpack[Filters]) -> Steps[Json]:
    """How many jobs match: ``total``, and by ``states``, ``queues`` and ``users``."""
    kept = [(name, one) for name, one in _asked(filters) if name not in _OF_PAGES]
    return _json((yield from ask(get("/jobs/counts", kept))).json())


def _asked(filters: Filters) -> list[tuple[str, object]]:
    return [
        (name, one)
        for name, value in filters.items()
        for one in ([value] if isinstance(value, str | int) else value)  # type: ignore[attr-defined]
        if (name, one) != ("user", "all")  # as on the command line; the server knows no such word
    ]


def jobs(**filters: Unpack[Filters]) -> Items[JobView]:
    """All jobs that match, page after page; ``limit`` bounds how many."""
    offset, left = filters.get("offset", 0), filters.get("limit")
    while left is None or left > 0:
        size = _PAGE if left is None else min(_PAGE, left)
        filters["offset"], filters["limit"] = offset, size
        found = yield from page(**filters)
        yield Emit(found.items)
        offset += len(found)
        left = None if left is None else left - len(found)
        if not found.items or offset >= found.total:
            return


def submit(
    document: Mapping[str, Any],
    secrets: Mapping[str, str] | None = None,
    payload: bytes | None = None,
    key: str = "",
) -> Steps[JobView]:
    """Hand in a job; with one ``key``, however often it is sent, it becomes one job."""
    headers = {"Idempotency-Key": key or uuid.uuid4().hex}
    body = _submission(document, secrets, payload)
    request = RestRequest("POST", "/jobs", body=body, headers=headers, again=True)
    return job_view((yield from ask(request)).json())


def plan(
    document: Mapping[str, Any],
    secrets: Mapping[str, str] | None = None,
    payload: bytes | None = None,
) -> Steps[Json]:
    """Where and when a job would run if it were handed in; nothing changes."""
    body = _submission(document, secrets, payload)
    return _json((yield from ask(RestRequest("POST", "/jobs/plan", body=body, again=True))).json())


def parse(text: str, name: str = "job") -> Steps[Json]:
    """Let the server read a job file: ``{job, notes}``."""
    request = RestRequest("POST", "/jobfiles/parse", body={"text": text, "name": name}, again=True)
    return _json((yield from ask(request)).json())


def cancel(job: str) -> Steps[JobView]:
    """End a job."""
    return (yield from _command(job, "cancel"))


def suspend(job: str) -> Steps[JobView]:
    """Take a job off its GPUs until it is resumed."""
    return (yield from _command(job, "suspend"))


def resume(job: str) -> Steps[JobView]:
    """Let a suspended job go on."""
    return (yield from _command(job, "resume"))


def scale(job: str, workers: int, most: int | None = None) -> Steps[JobView]:
    """Let a job have that many workers, or from ``workers`` to ``most``."""
    body = {"min": workers, "max": workers if most is None else most}
    return (yield from _command(job, "scale", body))


def migrate(job: str, node: str | None = None) -> Steps[JobView]:
    """Move a job, to that node or to wherever is best."""
    return (yield from _command(job, "migrate", {"node": node}))


def delete(job: str) -> Steps[JobView]:
    """Forget a job that is over, with its logs."""
    return job_view((yield from ask(RestRequest("DELETE", f"/jobs/{part(job)}"))).json())


def snapshot(job: str, name: str = "") -> Steps[SnapshotView]:
    """Take a snapshot of a job, named after the time unless ``name`` says otherwise.

    A job that uses ``roost.train`` saves itself for it; of others the last checkpoint is taken.
    """
    body = {"name": name or time.strftime("%Y%m%d-%H%M%S", time.gmtime())}
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    path = f"/jobs/{part(job)}/snapshots"
    while True:
        reply = yield from ask(RestRequest("POST", path, body=body, headers=headers, again=True))
        if reply.status != _UNDER_WAY:
            return views.snapshot_view(reply.json())
        yield Pause(_FIRST_LOOK_S)


def snapshots(job: str = "", limit: int | None = None) -> Steps[list[SnapshotView]]:
    """The snapshots of a job or of all jobs, the newest first; ``limit`` bounds how many."""
    found: list[SnapshotView] = []
    while limit is None or len(found) < limit:
        size = _PAGE if limit is None else min(_PAGE, limit - len(found))
        asked = [("job", job), ("offset", len(found)), ("limit", size)]
        told = (yield from ask(get("/snapshots", asked))).json()
        items = [views.snapshot_view(item) for item in items_of(told)]
        found += items
        if not items or len(found) >= int(_json(told).get("total", 0)):
            break
    return found


def delete_snapshot(job: str, name: str = "") -> Steps[None]:
    """Forget a snapshot with its files: ``JOB@NAME``, or job and name."""
    job, name = _pointed(job, name)
    yield from ask(RestRequest("DELETE", f"/jobs/{part(job)}/snapshots/{part(name)}"))


def clone(
    job: str,
    changes: Mapping[str, Any] | None = None,
    secrets: Mapping[str, str] | None = None,
    key: str = "",
) -> Steps[JobView]:
    """Hand in a new job that begins from a snapshot: ``JOB@NAME``, or the newest of ``JOB``.

    ``changes`` are fields of the job file. Secrets that are not given are those of the job, while
    it is not over and yours.
    """
    job, _, name = job.partition("@")
    body = {
        "snapshot": name or None,
        "changes": dict(changes or {}),
        "secrets": dict(secrets or {}),
    }
    headers = {"Idempotency-Key": key or uuid.uuid4().hex}
    request = RestRequest(
        "POST", f"/jobs/{part(job)}/clone", body=body, headers=headers, again=True
    )
    return job_view((yield from ask(request)).json())


def bulk(
    action: str, jobs: Sequence[str], labels: Mapping[str, str] | None = None
) -> Steps[list[Json]]:
    """Do the same to at most 200 jobs, by their ids; how it went with each, in their order.

    ``action`` is ``cancel``, ``suspend``, ``resume``, ``rerun`` or ``delete``; ``labels`` are added
    to those of the new jobs of a rerun.
    """
    body = {"action": action, "jobs": list(jobs), "labels": dict(labels or {})}
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    request = RestRequest("POST", "/jobs/bulk", body=body, headers=headers, again=True)
    return list(items_of((yield from ask(request)).json()))


def rerun(
    job: str,
    changes: Mapping[str, Any] | None = None,
    secrets: Mapping[str, str] | None = None,
    key: str = "",
) -> Steps[JobView]:
    """Hand in a new job with the job file of an earlier one, whatever became of that.

    ``changes`` are fields of the job file: ``env`` and ``labels`` are added to, others replaced,
    ``None`` takes one away. Secrets that are not given are those of the job, while it is not over
    and yours.
    """
    body = {"changes": dict(changes or {}), "secrets": dict(secrets or {})}
    headers = {"Idempotency-Key": key or uuid.uuid4().hex}
    path = f"/jobs/{part(job)}/rerun"
    request = RestRequest("POST", path, body=body, headers=headers, again=True)
    return job_view((yield from ask(request)).json())


def profiles(application: str = "") -> Steps[list[Json]]:
    """What was measured of your applications: step times by size, memory, costs of changes."""
    told = (yield from ask(get("/profiles", [("application", application)]))).json()
    return list(items_of(told))


def wait(job: str, timeout: float | None = None) -> Steps[JobView]:
    """Until the job is over; raises TimeoutError after ``timeout`` seconds.

    A server that is started anew meanwhile is waited for.
    """
    begun = heard = time.monotonic()
    look = _FIRST_LOOK_S
    while True:
        try:
            view = yield from status(job)
        except Retryable:
            if time.monotonic() - heard > PATIENCE_S:
                raise
        else:
            heard = time.monotonic()
            if view.over:
                return view
        left = None if timeout is None else begun + timeout - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError(f"job {job} is not over after {timeout:g} s")
        yield Pause(look if left is None else min(look, left))
        look = min(1.5 * look, _LAST_LOOK_S)


def explain(job: str) -> Steps[Json]:
    """Why a job is where it is, which jobs are ahead, when it will start, and what would help."""
    return _json((yield from ask(get(f"/jobs/{part(job)}/explain"))).json())


def document(job: str) -> Steps[Json]:
    """The job file that was handed in, without secrets."""
    return _json((yield from ask(get(f"/jobs/{part(job)}/file"))).json())


def history(
    job: str = "", kind: str = "", last: int | None = None, after: int = 0
) -> Steps[list[EventView]]:
    """What happened, the oldest first: to one job or to all, all of it or the ``last`` so many.

    ``after`` is the ``seq`` of an event: only what came later.
    """
    asked: list[tuple[str, object]] = [("job", job), ("kind", kind), ("after", after or None)]
    offset, found = 0, list[EventView]()
    if last is not None:
        told = (yield from ask(get("/events", [*asked, ("limit", 1)]))).json()
        offset = max(0, int(_json(told).get("total", 0)) - last)
    while True:
        params = [*asked, ("offset", offset), ("limit", _PAGE)]
        told = (yield from ask(get("/events", params))).json()
        items = [event_view(event) for event in items_of(told)]
        found += items
        offset += len(items)
        if not items or offset >= int(_json(told).get("total", 0)):
            return found


def events(job: str) -> Steps[list[EventView]]:
    """What happened to a job, the oldest first."""
    return (yield from history(job))


def workers(job: str, attempt: int = 0) -> Steps[list[str]]:
    """The workers of an attempt (0: the newest) that have logs."""
    told = (yield from ask(get(f"/jobs/{part(job)}/workers", [("attempt", attempt)]))).json()
    return [str(name) for name in items_of(told)]


def outcome(job: str) -> Steps[bytes]:
    """What a submitted function left, as it was written; see ``JobHandle.result``."""
    return (yield from ask(get(f"/jobs/{part(job)}/result"))).content


def nodes() -> Steps[list[Json]]:
    """The machines, with what they have and which jobs use it."""
    return list(items_of((yield from ask(get("/nodes"))).json()))


def cordon_node(node: str, reason: str = "", *, drain: bool = False) -> Steps[list[Json]]:
    """Let nothing new begin on a machine; ``drain``: what runs there leaves it, too."""
    body = {"reason": reason, "drain": drain}
    request = RestRequest("PUT", f"/nodes/{part(node)}/cordon", body=body, again=True)
    return list(items_of((yield from ask(request)).json()))


def uncordon_node(node: str) -> Steps[list[Json]]:
    """Let a machine be used again that was cordoned or drained."""
    request = RestRequest("DELETE", f"/nodes/{part(node)}/cordon", again=True)
    return list(items_of((yield from ask(request)).json()))


def plan_maintenance(
    node: str, starts_at: float, ends_at: float, reason: str = ""
) -> Steps[list[Json]]:
    """Let a machine be empty for some time, in seconds since 1970."""
    body = {"starts_at": starts_at, "ends_at": ends_at, "reason": reason}
    request = RestRequest("POST", f"/nodes/{part(node)}/maintenance", body=body)
    return list(items_of((yield from ask(request)).json()))


def cancel_maintenance(node: str, starts_at: float) -> Steps[list[Json]]:
    """Cancel the maintenance that starts at that time."""
    path = f"/nodes/{part(node)}/maintenance/{starts_at!r}"
    return list(items_of((yield from ask(RestRequest("DELETE", path))).json()))


def disable_gpu(node: str, gpu: int, reason: str = "") -> Steps[list[Json]]:
    """Use a GPU no longer, until ``restore_gpu``."""
    path = f"/nodes/{part(node)}/gpus/{gpu}/disable"
    request = RestRequest("POST", path, body={"reason": reason}, again=True)
    return list(items_of((yield from ask(request)).json()))


def restore_gpu(node: str, gpu: int) -> Steps[Any]:
    """Give a GPU that was set aside another chance."""
    path = f"/nodes/{part(node)}/gpus/{gpu}/restore"
    return (yield from ask(RestRequest("POST", path, again=True))).json()


def prune(*, dry_run: bool = False, **bounds: float | None) -> Steps[Json]:
    """Forget jobs that were kept long enough: ``keep_s``, ``keep_jobs``, ``max_disk_bytes``.

    Bounds that are not given are the server's. Returns what was forgotten, or would be, and
    whether there is ``more``.
    """
    body = {"dry_run": dry_run, **{name: one for name, one in bounds.items() if one is not None}}
    return dict((yield from ask(RestRequest("POST", "/prune", body=body, again=True))).json())


def queues() -> Steps[list[Json]]:
    """The queues, with what they were promised and what they use."""
    return list(items_of((yield from ask(get("/queues"))).json()))


def set_queue(queue: str, settings: Mapping[str, Any]) -> Steps[Json]:
    """Make a queue, or change one."""
    request = RestRequest("PUT", f"/queues/{part(queue)}", body=dict(settings), again=True)
    return _json((yield from ask(request)).json())


def delete_queue(queue: str) -> Steps[None]:
    """Remove a queue that no job uses."""
    yield from ask(RestRequest("DELETE", f"/queues/{part(queue)}"))


def notifications() -> Steps[Json]:
    """The settings of notifications, without secrets, and what waits to be sent."""
    return _json((yield from ask(get("/notifications"))).json())


def set_notifications(settings: Mapping[str, Any]) -> Steps[Json]:
    """Other settings of notifications."""
    request = RestRequest("PUT", "/notifications", body=dict(settings), again=True)
    return _json((yield from ask(request)).json())


def test_notification(to: str) -> Steps[None]:
    """Send a notification to a URL or a mail address now."""
    yield from ask(RestRequest("POST", "/notifications/test", body={"to": to}))


def top() -> Steps[Json]:
    """What nodes, jobs and queues use now."""
    return _json((yield from ask(get("/top"))).json())


def state() -> Steps[Json]:
    """The scheduler's state as a snapshot, for ``roost simulate --from``."""
    return _json((yield from ask(get("/state"))).json())


def users() -> Steps[list[Json]]:
    """The users of the server."""
    return list(items_of((yield from ask(get("/users"))).json()))


def add_user(
    name: str, role: str = "user", unix: str = "", bounds: Mapping[str, int] | None = None
) -> Steps[Json]:
    """Add a user; ``bounds`` are the most ``jobs``, ``disk_bytes`` and ``disk_max_bytes``."""
    body = {"name": name, "role": role, "unix": unix, **(bounds or {})}
    return _json((yield from ask(RestRequest("POST", "/users", body=body))).json())


def set_user(name: str, settings: Mapping[str, Any]) -> Steps[Json]:
    """Change a user's ``role``, ``unix`` account, bounds, or whether it is ``active``.

    The bounds are ``jobs``, ``disk_bytes`` and ``disk_max_bytes``; None: that of all users.
    """
    request = RestRequest("PATCH", f"/users/{part(name)}", body=dict(settings), again=True)
    return _json((yield from ask(request)).json())


def delete_user(name: str, *, cancel_jobs: bool = False) -> Steps[None]:
    """Forget a user with all tokens; refused while it has jobs that are not over."""
    query = (("cancel_jobs", "true"),) if cancel_jobs else ()
    yield from ask(RestRequest("DELETE", f"/users/{part(name)}", query))


def tokens(user: str = "") -> Steps[list[Json]]:
    """The tokens of a user, without their secrets."""
    return list(items_of((yield from ask(get("/tokens", [("user", user)]))).json()))


def add_token(user: str = "", label: str = "", lasts_s: float | None = None) -> Steps[Json]:
    """A new token; its ``secret`` is told this once."""
    given = {"user": user, "label": label, "expires_in_s": lasts_s}
    body = {name: value for name, value in given.items() if value not in ("", None)}
    return _json((yield from ask(RestRequest("POST", "/tokens", body=body))).json())


def revoke_token(token: str) -> Steps[None]:
    """Make a token worthless."""
    yield from ask(RestRequest("DELETE", f"/tokens/{part(token)}", again=True))


def login_link() -> Steps[str]:
    """The path of a link, on this server, that logs a browser in as the caller: once, soon."""
    return str(_json((yield from ask(RestRequest("POST", "/session/links"))).json())["path"])


def _command(job: str, verb: str, body: object = None) -> Steps[JobView]:
    request = RestRequest("POST", f"/jobs/{part(job)}/{verb}", body=body, again=True)
    return job_view((yield from ask(request)).json())


def _pointed(job: str, name: str) -> tuple[str, str]:
    """A job and the name of its snapshot, from ``JOB@NAME`` or apart."""
    found, at, after = job.partition("@")
    if not (after or name) or (at and name):
        raise InvalidSpec(f"say which snapshot, such as {found or 'JOB'}@NAME")
    return found, after or name


def _submission(
    document: Mapping[str, Any], secrets: Mapping[str, str] | None, payload: bytes | None
) -> Json:
    packed = None if payload is None else base64.b64encode(payload).decode()
    return {"job": dict(document), "secrets": dict(secrets or {}), "payload": packed}


def _json(told: Any) -> Json:
    if not isinstance(told, dict):
        raise Fatal("the server's answer is not an object; is that a Roost server?")
    return told
