"""Verbs that change jobs, queues and accounts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
from tests.unit.cli.told import roost
from tests.unit.client.fakes import NOW, FakeServer, put_jobs, view


def test_several_jobs_and_one_that_is_not_there(server: FakeServer) -> None:
    put_jobs(server)
    told = roost("cancel", "resnet-x7k2p", "nobody", "bert-m3c9w")
    assert told.status == 2
    assert told.out == "resnet-x7k2p  cancelled\nbert-m3c9w  cancelled\n"
    assert told.err == "roost: error: nobody: no job 'nobody'\n2 of 3 done, 1 not\n"
    assert roost("delete", "resnet-x7k2p").out == "resnet-x7k2p  deleted\n"
    assert "resnet-x7k2p" not in server.jobs


def test_cancelling_everything_is_about_my_open_jobs_and_is_asked(
    server: FakeServer, typing: Callable[[str], None]
) -> None:
    put_jobs(server)
    server.add("old-00000", "succeeded")
    typing("n\n")
    told = roost("cancel", "--all")
    assert told.status == 1
    assert "Cancel 2 jobs? [y/N]" in told.err
    assert server.jobs["bert-m3c9w"]["state"] == "queued"

    assert roost("cancel", "--all", "-y").status == 0
    states = {name: job["state"] for name, job in server.jobs.items()}
    assert states == {
        "resnet-x7k2p": "cancelled",
        "bert-m3c9w": "cancelled",
        "other-aaaaa": "running",
        "old-00000": "succeeded",
    }
    assert roost("cancel", "--all").err == "nothing to cancel\n"
    assert "say which jobs" in roost("cancel").error
    assert "exclude" in roost("cancel", "x", "--all").error


def test_scale_suspend_resume_and_migrate(server: FakeServer) -> None:
    put_jobs(server)
    assert roost("scale", "resnet-x7k2p", "1..8").out == "resnet-x7k2p  running  workers 2/1..4\n"
    assert server.bodies[-1] == {"verb": "scale", "body": {"min": 1, "max": 8}}
    roost("scale", "resnet-x7k2p", 3)
    assert server.bodies[-1]["body"] == {"min": 3, "max": 3}
    for wrong in ("0", "4..1", "many", "-1"):
        assert "workers" in roost("scale", "--", "resnet-x7k2p", wrong).error
    assert roost("suspend", "resnet-x7k2p").out == "resnet-x7k2p  suspended\n"
    assert roost("resume", "resnet-x7k2p").out == "resnet-x7k2p  queued\n"
    server.routes["POST", "/jobs/resnet-x7k2p/resume"] = view(
        "resnet-x7k2p", "suspended", reason="no GPU is free"
    )
    assert roost("resume", "resnet-x7k2p").out == (
        "resnet-x7k2p  suspended, goes on as soon as there is room: no GPU is free\n"
    )
    roost("migrate", "resnet-x7k2p", "--to", "n2")
    assert server.bodies[-1] == {"verb": "migrate", "body": {"node": "n2"}}


def test_a_queue_is_changed_where_it_is_told_and_stays_elsewhere(server: FakeServer) -> None:
    queue = {"id": "vision", "quota": 4.0, "limit": 8.0, "weight": 2.0, "priority": 1}
    queue |= {"submitters": ["ada"], "gpus_used": 0.0, "waiting": 0, "running": 0}
    sent: list[Any] = []

    def change(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return httpx.Response(200, json=queue)

    server.routes["GET", "/queues"] = {"items": [queue]}
    server.routes["PUT", "/queues/vision"] = server.routes["PUT", "/queues/new"] = change
    server.routes["DELETE", "/queues/vision"] = lambda _: httpx.Response(204)

    roost("queues", "set", "vision", "--limit", "none", "--submitters", "ada,bob")
    assert sent[-1] == {
        "quota_milli": 4000,
        "limit_milli": None,
        "weight": 2.0,
        "priority": 1,
        "submitters": ["ada", "bob"],
    }
    roost("queues", "set", "new", "--quota", "0.5")
    assert sent[-1] == {"quota_milli": 500, "limit_milli": None}
    assert "'lots'" in roost("queues", "set", "new", "--quota", "lots").error
    assert roost("queues", "delete", "vision").out == "vision  deleted\n"
    assert "did you mean" in roost("queues", "delet", "vision").error


def test_users_and_tokens(server: FakeServer) -> None:
    user = {"name": "bob", "role": "user", "unix": "", "active": True}
    token = {"id": "t1", "user": "ada", "label": "laptop", "created_at": NOW}
    token |= {"expires_at": None, "revoked_at": None, "last_used_at": NOW + 1800}
    server.routes["GET", "/users"] = {"items": [user]}
    server.routes["POST", "/users"] = server.routes["PATCH", "/users/bob"] = user
    server.routes["GET", "/tokens"] = {"items": [token]}
    server.routes["POST", "/tokens"] = {**token, "secret": "roost_secret"}
    server.routes["DELETE", "/tokens/t1"] = token
    server.routes["POST", "/nodes/n1/gpus/3/restore"] = {"items": []}

    assert roost("whoami").out == "ada (user) at http://127.0.0.1:7000\n"
    assert roost("users").out.splitlines()[1].split()[:4] == ["bob", "user", "-", "yes"]
    roost("users", "add", "bob", "--role", "viewer")
    assert json.loads(server.requests[-1].content) == {"name": "bob", "role": "viewer", "unix": ""}
    roost("users", "set", "bob", "--inactive")
    assert json.loads(server.requests[-1].content) == {"active": False}
    assert "nothing to change" in roost("users", "set", "bob").error

    assert roost("tokens").out.splitlines()[1].split() == [
        *("t1", "ada", "laptop", "valid", "1h", "ago", "30m", "ago", "never")
    ]
    made = roost("tokens", "add", "--label", "ci", "--expires", "30d")
    assert (made.out, made.err) == ("roost_secret\n", "shown this once; use it as ROOST_TOKEN\n")
    assert json.loads(server.requests[-1].content) == {"label": "ci", "expires_in_s": 2592000.0}
    assert roost("tokens", "revoke", "t1").out == "t1  revoked\n"
    assert roost("nodes", "restore", "n1", 3).out == "n1:3  in use again\n"
