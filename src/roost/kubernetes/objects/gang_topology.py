"""The domain that a gang has to stay inside: read from its pods, and from the object they are of.

    roost.dev/within     socket, node, switch, block or zone; on pods or on their owner
    a label of nodes     kueue.x-k8s.io/podset-required-topology of pods,
                         kai.scheduler/topology-required-placement of pods or their owner,
                         topologyConstraint.requiredTopologyLevel of KAI's PodGroups,
                         schedulingConstraints.topology of Kubernetes' own
    a tier               networkTopology of Volcano's PodGroups, unless its mode is soft: 1 is a
                         switch, 2 a block, 3 a zone

Of several the smallest holds, for it lies inside the others. What is merely preferred needs no
word: placers keep gangs together where they can.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from roost.core.spec import DOMAINS, Level
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.nodes import level_of
from roost.kubernetes.objects.values import (
    annotations_of,
    integer,
    labels_of,
    quoted,
    section,
    sections,
    text,
)

WITHIN: Final = "roost.dev/within"
_KUEUE = "kueue.x-k8s.io/podset-required-topology"
_KAI = "kai.scheduler/topology-required-placement"
_LEVELS = {level.name.lower(): level for level in (Level.SOCKET, Level.NODE, *DOMAINS)}


def within_of(pods: Iterable[Object], owner: Object | None) -> Level | None:
    """The level of the domain that a gang has to stay inside; raises InvalidSpec."""
    found = {level for pod in pods for level in _named(pod)}
    if owner is not None:
        found.update(_named(owner), _demanded(section(owner, "spec")))
    return min(found, default=None)


def _named(found: Object) -> Iterator[Level]:
    """What an object says by its labels and annotations."""
    labels, annotations = labels_of(found), annotations_of(found)
    if not (labels or annotations):
        return
    said = text(labels, WITHIN) or text(annotations, WITHIN)
    if said:
        if said not in _LEVELS:
            raise InvalidSpec(f"{WITHIN} is {', '.join(_LEVELS)}, not {quoted(said)}")
        yield _LEVELS[said]
    for name in (_KUEUE, _KAI):
        if label := text(annotations, name):
            yield _labelled(label, name)


def _demanded(spec: Object) -> Iterator[Level]:
    """What the spec of a PodGroup says."""
    if label := text(section(spec, "topologyConstraint"), "requiredTopologyLevel"):
        yield _labelled(label, "topologyConstraint.requiredTopologyLevel")
    for each in sections(section(spec, "schedulingConstraints"), "topology"):
        yield _labelled(text(each, "key"), "schedulingConstraints.topology")
    network = section(spec, "networkTopology")
    if network and text(network, "mode", "hard") != "soft":
        yield _tier(network)


def _tier(network: Object) -> Level:
    tier = integer(network, "highestTierAllowed")
    if not 1 <= tier <= len(DOMAINS):
        raise InvalidSpec(
            "networkTopology: highestTierAllowed is 1 for a switch, 2 for a block, 3 for a zone, "
            f"not {tier}"
        )
    return DOMAINS[tier - 1]


def _labelled(label: str, where: str) -> Level:
    level = level_of(label)
    if level is None:
        raise InvalidSpec(
            f"{where}: nodes do not say by {quoted(label)} where they are; "
            f"say it by {WITHIN}: {', '.join(_LEVELS)}"
        )
    return level
