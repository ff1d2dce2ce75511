"""Which device is bad, as far as the ends of runs tell: avoid what fails different jobs.

One job that fails says little: it may be at fault itself. Different jobs that fail on one device,
with no success between, say that it is the device; a driver that reports broken memory or a device
that is gone needs no other word. What users do wrong never counts. Weak evidence never takes
the last healthy device out of service: it is reported, and people decide.

Feed it devices only, not CPU slots, and of a gang only those of the worker where it began. It
decides on what it is given; times come with it, and what happens to a suspect is for the driver.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from roost.core.spec import JobId, NodeId
from roost.jobs.failures.verdicts import KINDS, Blame, Verdict


class DeviceKey(NamedTuple):
    """A device of a node; -1 stands for the node itself."""

    node: NodeId
    gpu: int


class Suspect(NamedTuple):
    """A device (or, with ``gpu`` None, a node) that seems bad.

    ``avoid``: the evidence is good enough to take it out of service; else it is only reported.
    """

    node: NodeId
    gpu: int | None
    why: str
    avoid: bool


class _Incident(NamedTuple):
    time: float
    job: str
    user: str
    kind: str


_NODE = -1


@dataclass(slots=True)
class Suspicions:
    """What failed where, since the last success there.

    ``jobs`` different jobs within ``window_s`` make a device suspect; one more if they all belong
    to one user, because they may have a bug in common.
    """

    jobs: int = 2
    window_s: float = 24 * 3600.0
    _incidents: dict[DeviceKey, list[_Incident]] = field(default_factory=dict)

    def observe(  # noqa: PLR0913 - what happened, in one line
        self,
        devices: Iterable[tuple[str, int]],
        job: JobId,
        user: str,
        verdict: Verdict | None,
        time: float,
        *,
        healthy: int | None = None,
    ) -> list[Suspect]:
        """Take note of how a run ended (None: well) on these devices; returns the suspects.

        ``healthy`` devices are in service now, those of the run included; None: enough of them.
        """
        held = {DeviceKey(NodeId(node), gpu) for node, gpu in devices}
        if verdict is None:
            for device in held:
                self.forget(device)
                self.forget(DeviceKey(device.node, _NODE))
            return []
        blame = KINDS[verdict.kind].blame
        if verdict.whose == "user" or blame == Blame.NONE:
            return []
        places = {DeviceKey(device.node, _NODE) for device in held} if blame == Blame.NODE else held
        incident = _Incident(time, job, user, verdict.kind)
        certain = blame == Blame.STRONG and len(places) == 1
        left = len(places) + 1 if healthy is None else healthy
        found: list[Suspect] = []
        for place in sorted(places):
            suspect = self._judge(place, incident, certain=certain, left=left)
            if suspect is not None:
                found.append(suspect)
                left -= suspect.avoid
        return found

    def forget(self, device: DeviceKey) -> None:
        """It works again: a job succeeded on it, or a person put it back into service."""
        self._incidents.pop(device, None)

    def _judge(
        self, place: DeviceKey, incident: _Incident, *, certain: bool, left: int
    ) -> Suspect | None:
        held = self._incidents.setdefault(place, [])
        held[:] = [old for old in held if incident.time - old.time <= self.window_s]
        # One entry for each job: trying again is no new evidence.
        held[:] = [old for old in held if old.job != incident.job] + [incident]
        node = place.gpu == _NODE
        why = f"{KINDS[incident.kind].phrase}: {_whose(held)}"
        if certain:
            return Suspect(place.node, place.gpu, why, avoid=True)
        users = {old.user for old in held}
        if len(held) < self.jobs + (len(users) == 1):
            return None
        return Suspect(place.node, None if node else place.gpu, why, avoid=not node and left > 1)


def _whose(held: list[_Incident]) -> str:
    jobs, users = len(held), len({old.user for old in held})
    if jobs == 1:
        return "one job"
    return f"{jobs} jobs of {f'{users} users' if users > 1 else 'one user'}, no success between"
