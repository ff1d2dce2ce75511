"""Random required node affinity with every operator, on labels and on names of nodes.

Drawn apart from the rest of a small cluster, so that the rest stays what it was.
"""

from __future__ import annotations

from random import Random
from typing import Any

from roost.kubernetes.client.kinds import Object

#: Labels that look like numbers, and such that only nearly do.
RANKS = ("0", "1", "5", "07", "x", "9223372036854775807", "9223372036854775808")
_BOUNDS = ("0", "1", "5", "x", "05", "9223372036854775807")
_OFTEN = 0.3


class NodeTerms:
    """Terms of node affinity that are added to those of a pod, and labels of its nodes."""

    def __init__(self, seed: int, nodes: int) -> None:
        self._chance = Random(seed + 0.25)
        self._labels = [self._label() for _ in range(nodes)]
        self._count = nodes
        often = self._chance.random() < _OFTEN
        self._terms = [self._term() for _ in range(self._chance.choice((1, 1, 2)))] if often else []

    def labels(self, at: int) -> dict[str, str]:
        """More labels of a node."""
        return self._labels[at]

    def terms(self, prefix: str) -> list[Object]:
        """More terms, for nodes whose names begin so."""
        return [_named(term, prefix) for term in self._terms]

    def _label(self) -> dict[str, str]:
        pick = self._chance.choice
        return {"speed": pick(RANKS)} if pick((True, True, False)) else {}

    def _term(self) -> Object:
        pick = self._chance.choice
        found: Object = {}
        kind = pick(("labels", "fields", "both"))
        if kind != "fields":
            found["matchExpressions"] = [self._expression() for _ in range(pick((1, 1, 2)))]
        if kind != "labels":
            at = str(pick(range(self._count + 1)))  # the last is of no node
            operator = pick(("In", "NotIn"))
            one = {"key": "metadata.name", "operator": operator, "values": [at]}
            found["matchFields"] = [one]
        return found

    def _expression(self) -> dict[str, Any]:
        pick = self._chance.choice
        operator = pick(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Gt", "Lt", "Lt"))
        found: dict[str, Any] = {"key": pick(("speed", "speed", "none")), "operator": operator}
        if operator in ("In", "NotIn"):
            found["values"] = self._chance.sample(RANKS, pick((1, 2)))
        elif operator in ("Gt", "Lt"):
            found["values"] = [pick(_BOUNDS)]
        return found


def _named(term: Object, prefix: str) -> Object:
    if "matchFields" not in term:
        return term
    (one,) = term["matchFields"]
    return {**term, "matchFields": [{**one, "values": [f"{prefix}-{at}" for at in one["values"]]}]}
