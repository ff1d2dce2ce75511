"""Whether the claims of a pod can be had on a node, and what they are given there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from roost.core import NodeId
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.filters.claims.allocation import allocation_of, reaches
from roost.kubernetes.filters.claims.books import (
    ClaimBooks,
    Decision,
    Key,
    allocation,
    consumers,
    is_free_but_for,
)
from roost.kubernetes.filters.claims.inventory import Inventory
from roost.kubernetes.filters.claims.requests import MOST_CONSUMERS, ClaimRequest, request_of
from roost.kubernetes.filters.claims.search import Search, Steps, TooLong
from roost.kubernetes.objects.nodes import NodeFacts
from roost.kubernetes.objects.values import section, sections, text

#: The most steps of a search on one node, and of all searches for a pod: some tenths of a second.
_ON_A_NODE, _FOR_A_POD = 20_000, 100_000


class PodClaim(NamedTuple):
    """A claim of a pod: of its own, or one that it may share."""

    key: Key
    claim: Object
    own: bool

    @property
    def uid(self) -> str:
        """What tells it from an earlier one of its name."""
        return str(self.claim["metadata"].get("uid"))


class Placed(NamedTuple):
    """What the claims of a pod are on a node: given anew, or as they are already."""

    claims: tuple[PodClaim, ...]
    given: Mapping[Key, Object]


def claims_of(pod: Object, books: ClaimBooks) -> tuple[PodClaim, ...]:
    """The claims of a pod; InvalidSpec says which is not there, or cannot be used."""
    namespace = str(pod["metadata"].get("namespace") or "")
    found: dict[Key, PodClaim] = {}
    for name, template in _names(pod):
        if not name:
            continue  # there is nothing to claim
        claim = books.claims.get((namespace, name))
        if claim is None:
            raise InvalidSpec(_missing(name, books))
        found[namespace, name] = PodClaim((namespace, name), claim, bool(template))
    for each in found.values():
        _check(pod, each, books)
    return tuple(found.values())


def claimed(pod: Object, books: ClaimBooks) -> list[Object]:
    """Those claims of a pod that are there, whatever is wrong with them."""
    namespace = str(pod["metadata"].get("namespace") or "")
    try:
        names = dict.fromkeys(name for name, _ in _names(pod) if name)
    except InvalidSpec:
        return []
    return [books.claims[namespace, n] for n in names if (namespace, n) in books.claims]


def _names(pod: Object) -> Iterator[tuple[str, str]]:
    """The names of its claims, each with the template of which it is made; without name: none."""
    made = {
        text(one, "name"): text(one, "resourceClaimName")
        for one in sections(section(pod, "status"), "resourceClaimStatuses")
    }
    for one in sections(pod["spec"], "resourceClaims"):
        name, template = text(one, "resourceClaimName"), text(one, "resourceClaimTemplateName")
        if not name and not template:
            raise InvalidSpec(f"its claim {text(one, 'name')} is of a sort that is not known")
        if not name and text(one, "name") not in made:
            raise InvalidSpec(f"waits for the claim to be made of template {template}")
        yield (name, "") if name else (made[text(one, "name")], template)


def _missing(name: str, books: ClaimBooks) -> str:
    if books.claims:
        return f"there is no ResourceClaim {name!r}"
    return (
        f"ResourceClaim {name!r} is not seen, nor is any other: Roost reads resource.k8s.io/v1, "
        f"which Kubernetes serves since 1.34"
    )


def _check(pod: Object, found: PodClaim, books: ClaimBooks) -> None:
    """Whether a claim can be the pod's at all."""
    meta, uid = found.claim["metadata"], pod["metadata"].get("uid")
    name = meta["name"]
    if meta.get("deletionTimestamp"):
        raise InvalidSpec(f"ResourceClaim {name!r} is being deleted")
    if found.own and not any(
        one.get("controller") and one.get("uid") == uid for one in meta.get("ownerReferences") or ()
    ):
        raise InvalidSpec(f"ResourceClaim {name!r} was not made for this pod")
    there = {text(one, "uid") for one in consumers(found.claim)}
    mine = str(meta.get("namespace") or ""), str(pod["metadata"]["name"])
    waiting = books.users.get(found.key, set()) - {mine}
    if uid not in there and len(there) + len(waiting) >= MOST_CONSUMERS:
        raise InvalidSpec(f"ResourceClaim {name!r} is used by {MOST_CONSUMERS} pods already")


class Verdict:
    """What claims mean to nodes, for one pod as things stand."""

    def __init__(
        self,
        pod: Object,
        books: ClaimBooks,
        inventory: Inventory,
        classes: Mapping[str, Object],
    ) -> None:
        self._books, self._inventory, self._classes = books, inventory, classes
        self.claims = claims_of(pod, books)
        self._steps = Steps(_FOR_A_POD)
        #: Claims that have devices already, or soon: where these can be used.
        self._fixed: dict[Key, Callable[[NodeFacts], bool]] = {}
        #: Of these those that nobody else uses: they can have other devices instead.
        self._movable: set[Key] = set()
        self._requests: dict[Key, ClaimRequest] = {}
        for one in self.claims:
            self._read(one, pod)

    def _read(self, one: PodClaim, pod: Object) -> None:
        decision = self._books.decisions.get(one.key)
        written = allocation(one.claim)
        if decision is not None and decision.uid == one.uid:
            self._fixed[one.key] = reaches(decision.allocation)
            return
        if written is not None:
            self._fixed[one.key] = reaches(written)
            others = self._books.users.get(one.key, set()) - {(one.key[0], pod["metadata"]["name"])}
            if others or not is_free_but_for(one.claim, str(pod["metadata"].get("uid"))):
                return
            self._movable.add(one.key)
        try:
            self._requests[one.key] = request_of(one.claim, self._classes)
        except InvalidSpec:
            if written is None:
                raise
            self._movable.discard(one.key)

    def place(self, node: NodeFacts) -> Placed | str:
        """What the claims are given on a node, or why the pod must not go there."""
        wanted: list[PodClaim] = []
        for one in self.claims:
            fixed = self._fixed.get(one.key)
            if fixed is not None and fixed(node):
                continue
            if fixed is not None and one.key not in self._movable:
                return f"its claim {one.key[1]} has devices that cannot be used there"
            wanted.append(one)
        if not wanted:
            return Placed(self.claims, {})
        found = self._searched(node, wanted)
        return found if isinstance(found, str) else Placed(self.claims, found)

    def _searched(self, node: NodeFacts, wanted: list[PodClaim]) -> dict[Key, Object] | str:
        seen = list(self._inventory.seen_from(node))
        freed = [one.key for one in wanted if one.key in self._movable]
        books = self._books.books(freed, [pool.id for pool, _ in seen])
        if self._steps.left <= 0:
            return _TOO_LONG
        steps = Steps(min(_ON_A_NODE, self._steps.left))
        before = steps.left
        try:
            given = Search(seen, [self._requests[one.key] for one in wanted], books, steps).found()
        except TooLong:
            return _TOO_LONG
        finally:
            self._steps.left -= before - max(0, steps.left)
        if given is None:
            troubles = [pool.trouble for pool, _ in seen if pool.trouble]
            return troubles[0] if troubles else "it has not the devices free that are claimed"
        return {
            one.key: allocation_of(one.claim, devices, self._classes)
            for one, devices in zip(wanted, given, strict=True)
        }

    @property
    def is_plain(self) -> bool:
        """Whether all its claims are its own and have no devices yet."""
        return not self._fixed and all(one.own for one in self.claims)

    @property
    def sort(self) -> str:
        """What pods have in common whose own claims ask for the same; empty: it has none to ask."""
        asked = [
            self._requests[one.key] for one in self.claims if one.own and one.key in self._requests
        ]
        if not asked:
            return ""
        written = repr([one._replace(name="") for one in asked]).encode()
        return hashlib.blake2b(written, digest_size=4).hexdigest()

    def room(self, node: NodeFacts, pod: Key, most: int) -> int:
        """How many pods like this one, each with its own claims, can be there at a time."""
        placed = self.place(node)
        if isinstance(placed, str):
            return 0
        own = [one.key for one in self.claims if one.own and one.key in placed.given]
        if not own:
            return most
        noted: list[Key] = []
        count = 1
        try:
            self._note(self.claims, placed, node, noted, f"{pod[1]}-0")
            while count < most:
                wanted = [one for one in self.claims if one.key in own]
                found = self._searched(node, wanted)
                if isinstance(found, str):
                    break
                self._note(wanted, Placed((), found), node, noted, f"{pod[1]}-{count}")
                count += 1
        finally:
            for key in noted:
                self._books.drop(key, key)
        return count

    def _note(
        self,
        claims: tuple[PodClaim, ...] | list[PodClaim],
        placed: Placed,
        node: NodeFacts,
        noted: list[Key],
        name: str,
    ) -> None:
        """Count devices as given out, for as long as room is looked for."""
        for one in claims:
            given = placed.given.get(one.key)
            if given is not None:
                key = (f"?{name}", one.key[1])  # of no namespace that there is
                self._books.decide(key, Decision("", given, node.name, {key}))
                noted.append(key)

    def undecided(self) -> Iterator[PodClaim]:
        """Claims that others may share, and that have no devices yet."""
        for one in self.claims:
            if not one.own and one.key not in self._fixed:
                yield one


_TOO_LONG = "which of its devices to give takes too long to work out"


def decisions_of(placed: Placed, node: NodeId, pod: Key) -> Iterator[tuple[Key, Decision]]:
    """What is to be written for a pod that goes to a node."""
    for one in placed.claims:
        given = placed.given.get(one.key)
        if given is not None:
            yield one.key, Decision(one.uid, given, node, {pod})
