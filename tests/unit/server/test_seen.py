"""What a user sees of others: nothing that names them or their jobs."""

from __future__ import annotations

from typing import Any

from roost.server.seen import Eyes
from roost.store.rows import EventRow, JobRow

OWNERS = {"bert-aaaaa": "ada", "gpt-bbbbb": "bob"}
ADA = Eyes("ada", all=False, owner=OWNERS.get)
ALL = Eyes("root", all=True, owner=OWNERS.get)


def test_texts_do_not_name_jobs_of_others() -> None:
    text = "makes room for gpt-bbbbb, after bert-aaaaa, over-quota 5-gpus1"
    assert ADA.text(text) == "makes room for another job, after bert-aaaaa, over-quota 5-gpus1"
    assert ALL.text(text) == text


def test_a_job_with_a_telling_reason() -> None:
    view = {"reason": "waits for gpt-bbbbb"}
    row = JobRow("bert-aaaaa", "bert", "ada", "q", "queued", submitted_at=0.0, view=view)
    assert ADA.job(row)["reason"] == "waits for another job"
    assert ALL.job(row) is row.view


def test_an_event_does_not_tell_who_did_it() -> None:
    row = EventRow(1, 0, 0.0, actor="bob", job="bert-aaaaa", user="ada", text="by gpt-bbbbb")
    assert ADA.event(row)["actor"] == ""
    assert ADA.event(row)["text"] == "by another job"
    assert ALL.event(row)["actor"] == "bob"


def test_a_node_shows_what_is_taken_and_not_by_whom() -> None:
    node: dict[str, Any] = {
        "id": "box",
        "devices": [
            {"index": 0, "jobs": [{"job": "gpt-bbbbb", "share": 0.5}]},
            {"index": 1, "jobs": [{"job": "bert-aaaaa", "share": 1.0}]},
        ],
    }
    assert ADA.node(node)["devices"] == [
        {"index": 0, "jobs": [{"share": 0.5}]},
        {"index": 1, "jobs": [{"job": "bert-aaaaa", "share": 1.0}]},
    ]
    assert ALL.node(node) == node


def test_an_explanation_counts_others_without_naming_them() -> None:
    told = {
        "job": "bert-aaaaa",
        "ahead": [{"id": "gpt-bbbbb", "name": "gpt", "user": "bob", "gpus": 2}],
        "names": ["gpt-bbbbb", "bert-aaaaa"],
        "reason": "waits for gpt-bbbbb",
    }
    assert ADA.without_others(told) == {
        "job": "bert-aaaaa",
        "ahead": [{"gpus": 2}],
        "names": ["bert-aaaaa"],
        "reason": "waits for another job",
    }


def test_queues_of_others_and_counts_of_others() -> None:
    closed = {"id": "closed", "submitters": ["bob"], "waiting": 3}
    mine = {"id": "mine", "submitters": ["bob", "ada"], "waiting": 3, "running": 2}
    assert not ADA.may_use(closed)
    assert ALL.may_use(closed)
    assert ADA.queue(mine, {"mine": [5.0]}) == {
        "id": "mine",
        "submitters": ["ada"],
        "waiting": 1,
        "running": None,
    }
