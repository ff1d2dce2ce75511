from __future__ import annotations

from typing import Any

from roost.live.alerts.findings import ClusterFigures, RunFigures, findings
from roost.live.alerts.rules import DEFAULTS

RULES = {rule.when: rule for rule in DEFAULTS.rules}
NOTICE = {"since": 5.0, "reason": "ECC", "user": ""}


def node(name: str, state: str = "up", notice: dict[str, Any] | None = None) -> dict[str, Any]:
    devices = [{"index": 0, "healthy": notice is None, "notice": notice}]
    return {"id": name, "state": state, "devices": devices}


SEEN = ClusterFigures(
    runs=[
        RunFigures("idle", "ada", "q", 1.0, 1.0, busy=0.01),
        RunFigures("low", "ada", "q", 1.0, 1.0, busy=0.1, moved_at=7.0),
        RunFigures("fine", "ada", "q", 1.0, 1.0, busy=0.9),
        RunFigures("cpu", "ada", "q", 1.0, 0.0, busy=0.0),
        RunFigures("unknown", "ada", "q", 1.0, 1.0),
    ],
    nodes=[
        node("up"),
        node("gone", "lost"),
        node("ecc", notice=NOTICE),
        node("off", notice={**NOTICE, "user": "root"}),
    ],
    oldest={"q": 2.0},
    disk_free=0.01,
    intake="the disk is full",
)


def test_each_condition_finds_its_own() -> None:
    found = {when: [one.subject for one in findings(rule, SEEN)] for when, rule in RULES.items()}
    assert found == {
        "idle-gpu": ["job idle"],
        "low-use": ["job idle", "job low"],
        "stuck": ["job low"],
        "node-lost": ["node gone"],
        "gpu-failed": ["GPU ecc/0"],
        "queue-wait": ["queue q"],
        "disk": ["disk"],
        "intake": ["intake"],
    }
    since = {one.subject: one.since for rule in DEFAULTS.rules for one in findings(rule, SEEN)}
    assert (since["job low"], since["GPU ecc/0"], since["queue q"]) == (7.0, 5.0, 2.0)


def test_in_a_quiet_cluster_nothing_is_found() -> None:
    quiet = ClusterFigures(nodes=[node("up")], disk_free=0.5)
    assert [one for rule in DEFAULTS.rules for one in findings(rule, quiet)] == []
