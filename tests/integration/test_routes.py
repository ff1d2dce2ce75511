"""Every route and method with every kind of token, and two users who must not notice each other."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fastapi.routing import APIRoute
from tests.unit.server.worlds import Puppets, World, looped, world

from roost.core.spec import JobId, RunId
from roost.server.options import ServerOptions
from roost.server.permissions import declared
from roost.server.roles import ROLES, RoutePermission

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
#: Names that are filled into paths; {job} is a job of ada.
NAMES = {
    "node": "box",
    "gpu": "0",
    "subject": "user",
    "queue": "spare",
    "user": "ada",
    "token": "tok-none",
    "name": "one",
    "starts_at": "0",
    "path": "no-such.js",
    "template": "no-such",
    "lab": "0" * 16,
}
#: Open routes, as they answer programs without a token.
OPEN = {"page": 401, "login_page": 200, "asset": 404, "log_in": 422}
BODIES = {
    "scale_job": {"min": 1, "max": 1},
    "set_budget": {"amount": "1"},
    "add_prices": {"items": []},
    "migrate_job": {"node": None},
    "submit_job": {"job": {"name": "x", "command": ["true"]}},
    "plan_job": {"job": {"name": "x", "command": ["true"]}},
    "parse_jobfile": {"text": "run: x"},
    "add_user": {"name": "eve"},
    "take_snapshot": {"name": "one"},
}


class Entry(NamedTuple):
    """A route as it is asked for."""

    method: str
    path: str
    name: str
    permission: RoutePermission
    of_job: bool
    stream: bool


def entries(here: World, job: str) -> Iterator[Entry]:
    """Every route of the app, with names filled in."""
    for route in here.app.routes:
        assert isinstance(route, APIRoute), route
        permission = declared(route)
        assert permission is not None, route.path
        path = route.path.replace(":path}", "}").format(job=job, **NAMES)
        for method in route.methods or ():
            streams = route.path.endswith("/stream")
            name = route.operation_id or ""
            yield Entry(method, path, name, permission, "{job}" in route.path, streams)


async def ask(here: World, entry: Entry, who: str) -> int:
    """The status of the answer to somebody."""
    if entry.stream:
        async with here.watch(entry.path, who) as viewer:
            return viewer.status
    async with here.client(who) as client:
        body = BODIES.get(entry.name, {}) if entry.method not in ("GET", "DELETE") else None
        return (await client.request(entry.method, entry.path, json=body)).status_code


async def people(here: World) -> None:
    """One of each kind: three roles, another user, and tokens that are worth nothing."""
    store = here.cluster.store
    for name, role in (("ada", "user"), ("bob", "user"), ("vic", "viewer"), ("adm", "admin")):
        await here.add(name, role)
    token, secret = store.accounts.add_token("adm", "revoked")
    store.accounts.revoke_token(token.id)
    here.tokens["revoked"] = secret
    _, here.tokens["expired"] = store.accounts.add_token("adm", "short", time.time() + 0.05)
    await here.add("off", "admin")
    user = store.accounts.user("off")
    assert user is not None
    store.accounts.set_user(type(user)("off", "admin", user.unix, active=False))
    here.tokens["bad"] = "roost_" + "x" * 43
    here.tokens["empty"] = ""
    await asyncio.sleep(0.06)  # until the short one is over: its clock is the wall clock


WORTHLESS = ("nobody", "bad", "empty", "expired", "revoked", "off")


@looped
async def test_every_route_with_every_token(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await people(here)
        async with here.client("adm") as admin:
            await admin.put("/api/v1/queues/spare", json={})
        job = await here.submit("ada")
        await here.until("ada", job, "running")
        found = sorted(entries(here, job), key=lambda entry: entry.method == "DELETE")
        assert len(found) > 30
        wrong = []
        for entry in found:
            for who in WORTHLESS:
                status = await ask(here, entry, who)
                free = entry.permission is RoutePermission.OPEN
                if status != (OPEN.get(entry.name, 200) if free else 401):
                    wrong.append((entry, who, status))
            for who, role in (("vic", "viewer"), ("ada", "user"), ("bob", "user")):
                allowed = (
                    entry.permission in ROLES[role] or entry.permission is RoutePermission.OPEN
                )
                status = await ask(here, entry, who)
                if not allowed:
                    fine = status == 403
                elif who == "bob" and entry.of_job:
                    fine = status == 404
                else:
                    fine = status not in (401, 403, 405) and status < 500
                if not fine:
                    wrong.append((entry, who, status))
        for entry in found:
            status = await ask(here, entry, "adm")
            if status in (401, 403, 405) or status >= 500:
                wrong.append((entry, "adm", status))
        assert wrong == []


@looped
async def test_methods_that_a_path_does_not_know(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await people(here)
        known: dict[str, set[str]] = {}
        for entry in entries(here, "x"):
            known.setdefault(entry.path, set()).add(entry.method)
        async with here.client("adm") as admin, here.client("nobody") as nobody:
            for path in ("plan", "counts", "bulk"):  # other methods are about a job of that name
                known.pop(f"/api/v1/jobs/{path}")
            for path, methods in known.items():
                for method in set(METHODS) - methods:
                    assert (await admin.request(method, path)).status_code == 405, (method, path)
                    bare = (await nobody.request(method, path)).status_code
                    assert bare == (405 if path in ("/healthz", "/readyz") else 401)


QUESTIONS = (
    "/api/v1/jobs",
    "/api/v1/jobs?user=bob",
    "/api/v1/jobs?name=train&limit=1",
    "/api/v1/jobs?state=succeeded&sort=finished_at",
    "/api/v1/jobs?q=secret",
    "/api/v1/jobs/counts",
    "/api/v1/jobs/counts?q=bob",
    "/api/v1/jobs/train",
    "/api/v1/jobs/{job}",
    "/api/v1/jobs/{job}/file",
    "/api/v1/jobs/{job}/logs",
    "/api/v1/jobs/{job}/events",
    "/api/v1/jobs/{job}/workers",
    "/api/v1/jobs/{other}",
    "/api/v1/jobs/secret-project",
    "/api/v1/jobs/{other}/logs",
    "/api/v1/jobs/{other}/events",
    "/api/v1/events?limit=200",
    "/api/v1/events?job={other}",
    "/api/v1/snapshots",
    "/api/v1/snapshots?job={other}",
    "/api/v1/jobs/{other}/snapshots/one",
    "/api/v1/profiles",
    "/api/v1/nodes",
    "/api/v1/queues",
    "/api/v1/top",
    "/api/v1/tokens",
    "/api/v1/users",
    "/metrics",
)


async def answers(here: World, job: str, other: str) -> dict[str, bytes]:
    """Everything that ada can find out."""
    found = {}
    async with here.client("ada") as client:
        for question in QUESTIONS:
            answer = await client.get(question.format(job=job, other=other))
            found[question] = b"%d " % answer.status_code + answer.content
    async with here.watch("/api/v1/stream", "ada") as viewer:
        await viewer.next()
        found["stream"] = re.sub(rb'"time":[0-9.e]+,"version"', b"", b"".join(viewer.chunks))
    async with here.watch(f"/api/v1/jobs/{job}/logs/stream", "ada") as viewer:
        await viewer.next()
        found["logs"] = b"".join(viewer.chunks)
    return found


@looped
async def test_a_user_cannot_tell_whether_others_are_there(tmp_path: Path) -> None:
    # A stream stays warm for a while after its last reader; here it must start anew.
    async with world(tmp_path, ServerOptions(linger_s=0.0)) as here:
        await here.add("ada")
        done = await here.submit("ada", "train")
        await here.finish("ada", done)
        job = await here.submit("ada", "train")
        await here.until("ada", job, "running")
        here.engine.output(RunId(JobId(job), 1)).text += b"hello\n"
        other = "secret-project-abcde"
        without = await answers(here, job, other)
        without = await answers(here, job, other)  # once more: its own requests are no difference

        await here.add("bob")
        async with here.client() as admin, here.client("bob") as bob:
            await admin.put("/api/v1/queues/bobs", json={"submitters": ["bob"]})
            for name in ("train", "secret-project", "secret-project"):
                theirs = await here.submit("bob", name, queue="bobs", labels={"who": "bob"})
                view = await here.until("bob", theirs, "running")
                here.engine.output(RunId(JobId(theirs), view["attempt"])).text += b"secret\n"
                await here.finish("bob", theirs, 1 if name == "train" else 0)
            await bob.post("/api/v1/tokens", json={})
        with_bob = await answers(here, job, theirs)
        for question, answer in with_bob.items():
            before = without[question].replace(other.encode(), theirs.encode())
            assert answer == before, question


@looped
async def test_a_users_stream_is_silent_while_others_work(tmp_path: Path) -> None:
    async with world(tmp_path, ServerOptions(tick_s=0.0)) as here:
        await here.add("ada")
        await here.add("bob")
        job = await here.submit("ada", "train", workers=4)
        await here.until("ada", job, "running")
        async with (
            here.watch("/api/v1/stream", "ada") as ada,
            here.watch("/api/v1/stream", "bob") as bob,
            here.client("bob") as client,
        ):
            await ada.next()
            assert (await bob.next()).data["jobs"] == []
            waits = await here.submit("bob", "waits")
            assert [one["id"] for one in (await bob.next()).data["jobs"]] == [waits]
            await client.post(f"/api/v1/jobs/{waits}/cancel")
            await here.until("bob", waits, "cancelled")
            await here.here.hub.flush()
            await here.submit("ada", "own")
            event = await ada.next()
            assert {one["user"] for one in event.data["jobs"]} == {"ada"}
            assert {one["user"] for one in event.data["events"]} == {"ada"}
            assert event.data["counts"]["queued"] == 1
            assert waits not in b"".join(ada.chunks).decode()


@looped
async def test_jobs_of_others_stay_unnamed_when_they_are_gone(tmp_path: Path) -> None:
    async with world(tmp_path, engine=Puppets(gpus=1), policy="srtf") as here:
        await here.add("ada")
        await here.add("bob")
        mine = await here.submit("bob", "long", run_time="10h")
        await here.until("bob", mine, "running")
        theirs = await here.submit("ada", "topsecret-project", run_time="1m")
        await here.until("bob", mine, "queued")
        path = f"/api/v1/jobs/{mine}/events"
        async with here.client("bob") as bob, here.client("ada") as ada, here.client() as admin:
            before = (await bob.get(path)).json()
            await here.finish("ada", theirs)
            assert (await ada.delete(f"/api/v1/jobs/{theirs}")).status_code == 200
            after = (await bob.get(path)).json()
            texts = [event["text"] for event in after["items"]]
            assert "stopped: makes room for another job" in texts
            assert after["items"][: before["total"]] == before["items"]
            assert "topsecret" not in "".join(texts)
            everything = (await bob.get("/api/v1/events?limit=200")).text
            assert "topsecret" not in everything
            assert theirs in (await admin.get(path)).text
