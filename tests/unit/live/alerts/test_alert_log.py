from __future__ import annotations

from pathlib import Path

from roost.live.alerts.alert_log import AlertLog
from roost.live.alerts.findings import ClusterFigures, RunFigures
from roost.live.alerts.rules import AlertRule

RULE = AlertRule(name="idle", when="idle-gpu", lasts=60.0)


def seen(busy: float) -> ClusterFigures:
    return ClusterFigures(runs=[RunFigures("j", "ada", "q", 0.0, 1.0, busy)])


def test_a_condition_fires_once_when_it_has_lasted_and_ends_when_it_is_over(
    tmp_path: Path,
) -> None:
    log = AlertLog(tmp_path / "alerts.json")
    assert log.look([RULE], seen(0.0), 0.0).fired == []
    assert log.look([RULE], seen(0.5), 30.0).fired == []  # it begins anew
    assert log.look([RULE], seen(0.0), 40.0).fired == []
    assert log.look([RULE], seen(0.0), 99.0).fired == []
    ((alert, rule),) = log.look([RULE], seen(0.0), 100.0).fired
    assert (alert.subject, alert.since, alert.fired_at, rule) == ("job j", 40.0, 100.0, RULE)
    assert log.look([RULE], seen(0.0), 200.0) == ([], [])
    log.done(alert, ["told 1 target"])
    log.save(log.text())

    again = AlertLog(tmp_path / "alerts.json")
    again.load()
    assert again.firing == log.firing
    assert again.look([RULE], seen(0.0), 300.0) == ([], [])
    (over,) = again.look([RULE], seen(0.9), 400.0).ended
    assert (over.id, over.ended_at, over.done) == (alert.id, 400.0, ("told 1 target",))
    assert again.firing == {}
    assert again.ended == [over]


def test_a_rule_that_is_off_or_gone_ends_its_alerts(tmp_path: Path) -> None:
    log = AlertLog(tmp_path / "alerts.json")
    now = RULE.model_copy(update={"lasts": 0.0})
    assert len(log.look([now], seen(0.0), 1.0).fired) == 1
    assert len(log.look([now.model_copy(update={"on": False})], seen(0.0), 2.0).ended) == 1


def test_a_damaged_file_is_forgotten(tmp_path: Path) -> None:
    for text in ("", "{", "[]", '{"ended": 5, "firing": []}', "null"):
        (tmp_path / "alerts.json").write_text(text)
        log = AlertLog(tmp_path / "alerts.json")
        log.load()
        assert (log.firing, log.ended) == ({}, [])
