"""Finding storage for the claims of a pod on one node: a volume that is there, or one to be made.

The smallest volume that is large enough is taken, claims in the order of their sizes. A claim for
which none is there is provisioned, if its class can do that for the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from roost.core import NodeId
from roost.kubernetes.filters.volumes.catalog import StorageCatalog
from roost.kubernetes.objects.storage import ClaimKey, Labels, Volume, VolumeClaim


class VolumeChoice(NamedTuple):
    """What a claim shall be bound to: a volume, or one that is provisioned for a node."""

    claim: VolumeClaim
    node: NodeId
    volume: str = ""


#: What is decided about claims that the server does not know of.
Choices = Mapping[ClaimKey, VolumeChoice]


class NodePlace(NamedTuple):
    """A node for which storage is looked for."""

    name: NodeId
    labels: Labels


def chosen(
    catalog: StorageCatalog, claims: Iterable[VolumeClaim], place: NodePlace, decided: Choices
) -> list[VolumeChoice] | str:
    """What these claims would be bound to on a node; or why there is nothing for one of them."""
    found: list[VolumeChoice] = []
    taken = {one.volume for one in decided.values() if one.volume}
    for claim in sorted(claims, key=lambda claim: claim.asked.size or 0):
        before = decided.get(claim.key)
        if before is not None:
            if why := _away(catalog, before, place):
                return why
            found.append(before)
            continue
        if claim.selected_node and claim.selected_node != place.name:
            return f"claim {claim.name} is being provisioned for another node"
        volume = None if claim.selected_node else _smallest(catalog, claim, place.labels, taken)
        if volume is not None:
            taken.add(volume.name)
        elif why := _unprovided(catalog, claim, place.labels):
            return why
        found.append(VolumeChoice(claim, place.name, volume.name if volume else ""))
    return found


def _away(catalog: StorageCatalog, choice: VolumeChoice, place: NodePlace) -> str:
    """Why what was decided for a claim cannot be used from a node; empty: it can."""
    if not choice.volume:
        found = catalog.classes.get(choice.claim.asked.storage_class)
        if choice.node == place.name:
            return ""
        if choice.claim.is_shared and found is not None and found.reaches(place.labels):
            return ""  # whether it does is seen when it is made
        return f"claim {choice.claim.name} is being provisioned for another node"
    volume = catalog.volumes.get(choice.volume)
    if volume is not None and volume.is_near(place.labels):
        return ""
    return f"the volume of claim {choice.claim.name} is elsewhere"


def _smallest(
    catalog: StorageCatalog, claim: VolumeClaim, labels: Labels, taken: set[str]
) -> Volume | None:
    """The smallest volume for a claim that a node reaches; one that is meant for it comes first."""
    best: Volume | None = None
    for volume in catalog.candidates(claim, labels):
        if volume.name in taken or not _suits(volume, claim):
            continue
        if volume.claim is not None:
            if volume.claim.means(claim):
                return volume if volume.is_near(labels) else None
            continue
        if best is not None and best.size <= volume.size:
            continue
        if _is_offered(volume, claim) and volume.is_near(labels):
            best = volume
    return best


def _suits(volume: Volume, claim: VolumeClaim) -> bool:
    asked = claim.asked
    return (
        not volume.is_leaving
        and volume.storage_class == asked.storage_class
        and volume.size >= (asked.size or 0)
        and volume.mode == asked.mode
        and volume.attributes == asked.attributes
    )


def _is_offered(volume: Volume, claim: VolumeClaim) -> bool:
    asked = claim.asked
    return (
        volume.is_available
        and volume.access.issuperset(asked.access)
        and (asked.selector is None or asked.selector.matches(volume.labels))
    )


def _unprovided(catalog: StorageCatalog, claim: VolumeClaim, labels: Labels) -> str:
    """Why no volume can be made for a claim near a node; empty: it can."""
    found = catalog.classes.get(claim.asked.storage_class)
    if found is None or not found.provisions:
        return f"no volume is there for claim {claim.name}"
    if not found.reaches(labels):
        return f"StorageClass {found.name} makes no volumes for it"
    if not catalog.has_room(found, claim.asked.size, labels):
        return f"too little storage is left there for claim {claim.name}"
    return ""
