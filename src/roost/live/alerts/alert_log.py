"""Which alerts there are: those that fire now, those that did, and since when a condition holds.

Written to a file of the home, so that a restart neither forgets an alert nor fires it twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from roost import files
from roost.api.alerts import AlertView
from roost.api.schema import decode, encode
from roost.errors import NotFound
from roost.live.alerts.findings import ClusterFigures, Finding, findings
from roost.live.alerts.rules import AlertRule

#: How many alerts that are over are kept.
ENDED = 300

_Key = tuple[str, str]


class AlertNews(NamedTuple):
    """What a look brought: alerts that began to fire, each with its rule, and those that ended."""

    fired: list[tuple[AlertView, AlertRule]]
    ended: list[AlertView]


class AlertLog:
    """Compares what is found with what was found before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.firing: dict[_Key, AlertView] = {}
        self.ended: list[AlertView] = []
        self._since: dict[_Key, float] = {}

    def load(self) -> None:
        """Read what was written; what cannot be read is forgotten."""
        try:
            told = json.loads(files.load(self._path).text)
            self.ended = [decode(AlertView, one) for one in told["ended"]]
            firing = [decode(AlertView, one) for one in told["firing"]]
        except (NotFound, ValueError, KeyError, TypeError):
            return
        self.firing = {(one.rule, one.subject): one for one in firing}
        self._since = {key: one.since for key, one in self.firing.items()}

    def text(self) -> str:
        """What is to be written."""
        told = {
            "firing": [encode(one) for one in self.firing.values()],
            "ended": [encode(one) for one in self.ended],
        }
        return json.dumps(told)

    def save(self, text: str) -> None:
        """Write it; raises RoostError."""
        files.save(self._path, text, 0o600)

    def look(self, rules: Iterable[AlertRule], seen: ClusterFigures, now: float) -> AlertNews:
        """Take in what the rules find now."""
        found = {
            (rule.name, finding.subject): (rule, finding)
            for rule in rules
            if rule.on
            for finding in findings(rule, seen)
        }
        self._since = {key: self._begin(key, found[key][1], now) for key in found}
        due = {key: one for key, one in found.items() if now - self._since[key] >= one[0].lasts}
        news = AlertNews([], list(self._end(due, now)))
        for key, (rule, finding) in due.items():
            if key in self.firing:
                continue
            alert = _alert(rule, finding, self._since[key], now)
            self.firing[key] = alert
            news.fired.append((alert, rule))
        return news

    def done(self, alert: AlertView, actions: Iterable[str]) -> None:
        """Note what was done about an alert."""
        key = (alert.rule, alert.subject)
        if key in self.firing:
            self.firing[key] = replace(self.firing[key], done=tuple(actions))

    def _begin(self, key: _Key, finding: Finding, now: float) -> float:
        return self._since.get(key, now) if finding.since is None else finding.since

    def _end(self, due: dict[_Key, tuple[AlertRule, Finding]], now: float) -> Iterator[AlertView]:
        for key in [key for key in self.firing if key not in due]:
            alert = replace(self.firing.pop(key), ended_at=now)
            self.ended = [*self.ended, alert][-ENDED:]
            yield alert


def _alert(rule: AlertRule, finding: Finding, since: float, now: float) -> AlertView:
    place = f"{rule.name}/{finding.subject}/{now}"
    return AlertView(
        id=hashlib.sha256(place.encode()).hexdigest()[:16],
        rule=rule.name,
        when=rule.when,
        severity=rule.severity,
        subject=finding.subject,
        text=finding.text,
        job=finding.job,
        user=finding.user,
        node=finding.node,
        queue=finding.queue,
        since=since,
        fired_at=now,
    )
