"""What a user sees of others: nothing that names them or their jobs."""

from __future__ import annotations

from typing import Any

from roost.live.submissions import _LETTERS
from roost.server.visibility import _ID, Visibility
from roost.store.rows import EventRow, JobRow

OWNERS = {"bert-aaaaa": "ada", "gpt-bbbbb": "bob", "rack-nodeb": ""}
ADA = Visibility("ada", all=False, owner=OWNERS.get)
ALL = Visibility("root", all=True, owner=OWNERS.get)


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
        "held_by": [
            {"job": "gpt-bbbbb", "user": "bob", "gpus": 2, "ends_at": 9.0},
            {"job": "forgotten", "user": "bob", "gpus": 1, "ends_at": None},
            {"job": "bert-aaaaa", "user": "ada", "gpus": 1, "ends_at": 9.5},
        ],
        "names": ["gpt-bbbbb", "bert-aaaaa"],
        "reason": "waits for gpt-bbbbb",
    }
    assert ADA.without_others(told) == {
        "job": "bert-aaaaa",
        "ahead": [{"gpus": 2}],
        "held_by": [
            {"gpus": 2, "ends_at": 9.0},
            {"gpus": 1, "ends_at": None},
            {"job": "bert-aaaaa", "user": "ada", "gpus": 1, "ends_at": 9.5},
        ],
        "names": ["bert-aaaaa"],
        "reason": "waits for another job",
    }


def test_queues_of_others_and_counts_of_others() -> None:
    closed = {"id": "closed", "submitters": ["bob"], "waiting": 3}
    mine = {"id": "mine", "submitters": ["bob", "ada"], "waiting": 3, "running": 2}
    assert not ADA.may_use(closed)
    assert ALL.may_use(closed)
    assert ADA.queue(mine, {"mine": 1}) == {
        "id": "mine",
        "submitters": ["ada"],
        "waiting": 1,
        "running": None,
    }


def test_jobs_that_nobody_knows_any_more_are_not_seen_either() -> None:
    gone = "stopped: makes room for topsecret-project-k9zse"
    row = EventRow(1, 0, 0.0, job="old-ccccc", user="ada", kind="decision", text=gone)
    assert ADA.event(row)["text"] == "stopped: makes room for another job"
    assert ALL.event(row)["text"] == gone
    view = {"id": "old-ccccc", "state": "running", "reason": f"is being {gone}, not old-ccccc"}
    assert ADA.view(view)["reason"] == "is being stopped: makes room for another job, not old-ccccc"
    told = {"job": "old-ccccc", "state": "running", "reason": gone}
    assert ADA.explanation(told)["reason"] == "stopped: makes room for another job"
    node = EventRow(1, 0, 0.0, job="old-ccccc", user="ada", text="GPU 0 of node rack-nodeb failed")
    assert ADA.event(node)["text"] == node.text


def test_what_a_job_says_itself_stays_as_it_is() -> None:
    text = "KeyError: 'user-agent', see run-xyz22 of gpt-bbbbb"
    known = "KeyError: 'user-agent', see run-xyz22 of another job"
    row = EventRow(1, 0, 0.0, job="bert-aaaaa", user="ada", kind="state", new="failed", text=text)
    assert ADA.event(row)["text"] == known
    for more in ({"state": "failed"}, {"state": "queued", "cause": "back-off"}):
        assert ADA.view({"id": "bert-aaaaa", "reason": text, **more})["reason"] == known
    told = {"job": "bert-aaaaa", "state": "failed", "reason": text, "verdict": {"sentence": text}}
    assert ADA.explanation(told)["reason"] == known


def test_ids_are_made_of_what_is_looked_for() -> None:
    for letter in _LETTERS:
        assert _ID.fullmatch(f"some-name-{letter * 5}")
    assert not any(_ID.fullmatch(f"over-{letter * 5}") for letter in "ilo01")


def test_what_is_assumed_tells_no_numbers_of_others() -> None:
    assumed = [
        "3 jobs of unknown length: taken as 0.0263 s, the median of 7 jobs, or twice",
        "2 jobs held by its user: taken to stay so",
        "1 node out of service: taken to stay so",
        "no new jobs come, and nothing fails",
    ]
    told = {"job": "bert-aaaaa", "state": "queued", "reason": "", "assumptions": assumed}
    other = {**told, "assumptions": [assumed[2], "44 jobs " + assumed[0][7:], assumed[3]]}
    seen = ADA.explanation(told)["assumptions"]
    assert seen == ADA.explanation(other)["assumptions"]
    assert assumed[2] in seen
    assert assumed[3] in seen
    assert not any(mark in text for text in seen for mark in ("3 jobs", "0.0263", "median"))
    assert ALL.explanation(told)["assumptions"] == assumed
    assert ADA.explanation({**told, "assumptions": []})["assumptions"] == []
