"""Which namespaces an operator serves, and what it knows of the others.

Confined to namespaces it has no eyes elsewhere but for what takes room: pods, and claims of
devices. Where it may not even list those it is *blind*, and uses a node only if an administrator
promises in the node's annotation ``roost.dev/others`` what pods of other namespaces take there at
most: what cannot be counted must not be guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects import quantities
from roost.kubernetes.objects.values import section

#: What pods of other namespaces take of a node at most: ``none``, or ``cpu=2,memory=4Gi,pods=12``.
OTHERS = "roost.dev/others"
#: Kinds, by their names in permissions, that take room wherever they are.
COUNTED_EVERYWHERE = frozenset({"pods", "resourceclaims.resource.k8s.io"})
_NOTHING = "none"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_EXAMPLE = f'"{_NOTHING}", or such as "cpu=2,memory=4Gi,pods=12"'


@dataclass(frozen=True, slots=True)
class NamespaceScope:
    """The namespaces that are served; none named: all. ``is_blind``: pods elsewhere are unseen."""

    namespaces: tuple[str, ...] = ()
    is_blind: bool = False

    def has(self, namespace: str) -> bool:
        """Whether what is there is Roost's to place and to change."""
        return not self.namespaces or namespace in self.namespaces

    def of_node(self, node: Object) -> Object:
        """A node with what is left for the namespaces that are served; InvalidSpec: unknown."""
        return _without_others(node) if self.is_blind else node


def namespaces_of(text: str) -> tuple[str, ...]:
    """Names of namespaces with commas between them, as people give them; none: all are served."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if not _NAME.fullmatch(name):
            raise InvalidSpec(
                f"{name!r} is no name of a namespace: lower-case letters, digits and dashes, "
                "with commas between several"
            )
    if text.strip() and not names:
        raise InvalidSpec("--namespaces names none; leave it out to serve all")
    return names


def _without_others(node: Object) -> Object:
    taken = _promised(node)
    status = section(node, "status")
    offered = dict(section(status, "allocatable"))
    for name, amount in taken.items():
        if name in offered:
            offered[name] = _less(name, offered[name], amount)
    return {**node, "status": {**status, "allocatable": offered}}


def _promised(node: Object) -> dict[str, str]:
    notes = section(section(node, "metadata"), "annotations")
    text = notes.get(OTHERS)
    if not isinstance(text, str) or not text.strip():
        raise InvalidSpec(
            "pods of other namespaces cannot be listed, and the node does not say what they take: "
            f"give the right to list pods, or annotate the node with {OTHERS}: {_EXAMPLE}"
        )
    if text.strip() == _NOTHING:
        return {}
    return dict(_pairs(text))


def _pairs(text: str) -> Iterable[tuple[str, str]]:
    for part in text.split(","):
        name, equals, amount = (piece.strip() for piece in part.partition("="))
        if not (name and equals and amount):
            raise InvalidSpec(f"{OTHERS}: {part.strip()!r} is no amount; say {_EXAMPLE}")
        quantities.milli(amount, f"{OTHERS} {name}")
        yield name, amount


def _less(name: str, offered: object, taken: str) -> str:
    """What is left, never below nothing, rounded down as it will be read."""
    if name == "cpu":
        left = quantities.milli(offered, name, down=True) - quantities.milli(taken, name)
        return f"{max(0, left)}m"
    if name == "memory":
        left = quantities.mib(offered, name, down=True) - quantities.mib(taken, name)
        return f"{max(0, left)}Mi"
    left = quantities.whole(offered, name, down=True) - quantities.whole(taken, name)
    return str(max(0, left))
