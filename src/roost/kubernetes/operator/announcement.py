"""What an operator says of itself on its Lease: which policy and placer decide.

The Lease is the one object that only the operator in charge writes. A gateway reads it there, so
that its forecasts are of the policy that runs. A label finds the Lease in any namespace and under
any name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from roost import placement, policies
from roost.core import Placer, Policy
from roost.errors import InvalidSpec, RoostError
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import LEASES, Object

#: What decides where nothing else is said.
DEFAULT_POLICY, DEFAULT_PLACER = "priority", "topology"

#: The label of an operator's Lease, and the annotations that name policy and placer.
COMPONENT = "roost.dev/component"
POLICY, PLACER = "roost.dev/policy", "roost.dev/placer"
#: Which pods it places: their scheduler's name, and their namespaces; none named: all.
SCHEDULER, NAMESPACES = "roost.dev/scheduler", "roost.dev/namespaces"
_OPERATOR = "operator"

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_USUAL = f"forecasts are of the default policy, {DEFAULT_POLICY}"


class Announcement(NamedTuple):
    """The policy and placer of the operator, with their parameters, as the command line has them.

    ``note`` is for people: empty if an operator leads, else why this may not be what will decide.
    """

    policy: str = DEFAULT_POLICY
    placer: str = DEFAULT_PLACER
    note: str = ""
    scheduler: str = "roost"
    namespaces: tuple[str, ...] = ()

    def metadata(self) -> Object:
        """Labels and annotations of the Lease of such an operator."""
        return {
            "labels": {COMPONENT: _OPERATOR},
            "annotations": {
                POLICY: self.policy,
                PLACER: self.placer,
                SCHEDULER: self.scheduler,
                NAMESPACES: ",".join(self.namespaces),
            },
        }

    def made(self) -> tuple[Policy, Placer]:
        """Policy and placer themselves; raises a RoostError where this process has none such.

        Names only, never files: an object of a cluster must not make a user's machine load code.
        """
        for text in (self.policy, self.placer):
            if not _NAME.fullmatch(text.partition(":")[0]):
                raise InvalidSpec(f"{text!r} is no name of a policy or a placer")
        return policies.policy(self.policy), placement.placer(self.placer)


async def announced(api: Api) -> Announcement:
    """What the operator of a cluster says; the defaults, and a note, where none is to be heard."""
    try:
        leases, _ = await api.list(LEASES, labels=f"{COMPONENT}={_OPERATOR}")
    except RoostError as error:
        return Announcement(note=f"the operator's policy cannot be read ({error}): {_USUAL}")
    return understood(leases)


def understood(leases: Iterable[Object]) -> Announcement:
    """What Leases of operators say: the one that is held counts, then the one renewed last."""
    found = max(leases, key=_rank, default=None)
    if found is None:
        return Announcement(note=f"no operator was seen in this cluster: {_USUAL}")
    notes: Mapping[str, str] = found["metadata"].get("annotations") or {}
    told = Announcement(notes.get(POLICY, DEFAULT_POLICY), notes.get(PLACER, DEFAULT_PLACER))
    try:
        told.made()
    except RoostError as error:
        return Announcement(note=f"the operator's policy is not known here ({error}): {_USUAL}")
    if not _rank(found)[0]:
        return told._replace(
            note=f"no operator leads now: forecasts are of the last, {told.policy}"
        )
    return told


def _rank(lease: Object) -> tuple[bool, str]:
    spec = lease.get("spec") or {}
    return bool(spec.get("holderIdentity")), str(spec.get("renewTime") or "")
