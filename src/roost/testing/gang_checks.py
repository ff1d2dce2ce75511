"""Checks that the parts chosen for a gang are the whole gang, where the job asked to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from roost.core import WORKER, Ledger, Level, Part, Range, Resources, Shape


def gang_problems(ledger: Ledger, shape: Shape, parts: Sequence[Part]) -> list[str]:
    """What is wrong with the parts that were chosen for a gang; free or not is not asked.

    Nor is which pool they are in: nodes may have left it since (``strangers``).
    """
    wanted = {WORKER: Range(shape.workers, shape.workers)}
    wanted |= {role.name: role.sizes for role in shape.roles}
    got: Counter[str] = Counter()
    for part in parts:
        got[part.role] += part.workers
    if got.keys() != wanted.keys() or any(
        not low <= got[name] <= high for name, (low, high) in wanted.items()
    ):
        asked = {name: str(sizes) for name, sizes in wanted.items()}
        return [f"it has workers {dict(got)}, asked for {asked}"]
    found = [problem for part in parts for problem in _part_problems(ledger, shape, part)]
    if shape.within is not None and reach(ledger, parts) > shape.within:
        found.append(f"{parts} reach over more than one {shape.within.name.lower()}")
    return found


def strangers(ledger: Ledger, shape: Shape, parts: Sequence[Part]) -> list[str]:
    """Parts that are on nodes outside the pool that their workers ask for."""
    found = []
    for part in parts:
        pool = _need(shape, part).pool
        if pool and part.node not in ledger.members.get(pool, ()):
            found.append(f"{part} is outside of pool {pool}")
    return found


def reach(ledger: Ledger, parts: Sequence[Part]) -> Level:
    """The smallest cell that holds all parts; one without devices is anywhere on its node."""
    nodes = {part.node for part in parts}
    if len(nodes) > 1:
        specs = [ledger.nodes[name].spec for name in nodes]
        for level in (Level.SWITCH, Level.BLOCK, Level.ZONE):
            named = all(spec.is_within(level) for spec in specs)
            if named and len({spec.domain(level) for spec in specs}) == 1:
                return level
        return Level.CLUSTER
    (name,) = nodes
    gpus = {gpu for part in parts for gpu in part.gpus}
    if len(gpus) <= 1:
        return Level.GPU
    sockets = {ledger.nodes[name].spec.socket_of(gpu) for gpu in gpus}
    return Level.SOCKET if len(sockets) == 1 else Level.NODE


def _part_problems(ledger: Ledger, shape: Shape, part: Part) -> list[str]:
    need, kind = _need(shape, part), ledger.nodes[part.node].spec.kind
    found = []
    if len(part.gpus) != part.workers * need.gpus or len(set(part.gpus)) != len(part.gpus):
        found.append(f"{part} does not have {need.gpus} GPUs for each worker")
    if need.gpus and part.share_milli != need.share_milli:
        found.append(f"{part} has another share than {need.share_milli}")
    if need.kinds and kind not in need.kinds:
        found.append(f"{part} is on a {kind}, asked for {need.kinds}")
    return found


def _need(shape: Shape, part: Part) -> Resources:
    for role in shape.roles:
        if role.name == part.role:
            return role.resources
    return shape.resources
