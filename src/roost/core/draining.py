"""Nodes that are being drained: what runs there leaves, as gently as there is room for.

A run that is up moves, whole or in part, to where there is room; an elastic one goes on with the
workers that it has elsewhere; any other ends at its checkpoint and its job waits. These are
decisions like those of a policy, made before it is asked. A job that is protected stays.
"""

from __future__ import annotations

from dataclasses import replace

from roost.core.allocation import WORKER, Allocation, Part
from roost.core.cluster_state import ClusterState
from roost.core.lifecycle import goes_on
from roost.core.node import Node
from roost.core.plan import Plan
from roost.core.spec import Shape
from roost.core.state import Run


def why_it_leaves(node: Node) -> str:
    """Why a run cannot stay on a node, or come to it."""
    doing = "being drained" if node.draining else "cordoned"
    reason = f": {node.cordon.reason}" if node.cordon is not None and node.cordon.reason else ""
    return f"its node {node.id} is {doing}{reason}"


def drain(state: ClusterState, plan: Plan) -> None:
    """Let what is up on nodes that are being drained leave them; the rest is asked once it is."""
    for node in list(state.ledger.cordoned.values()):
        for run in list(node.runs) if node.draining else ():
            if _is_on(run, node) and (run.settled or run.frozen):
                _leave(state, plan, run, why_it_leaves(node))
            elif not run.leaves:
                plan.await_starts()


def _is_on(run: Run, node: Node) -> bool:
    return any(part.node == node.id for part in run.allocation.parts)


def _leave(state: ClusterState, plan: Plan, run: Run, why: str) -> None:
    """Give a run a place elsewhere, less of what it has, or none for now."""
    nodes = state.ledger.nodes
    stays = tuple(part for part in run.allocation.parts if not nodes[part.node].draining)
    if run.settled:
        if stays and _replace_rest(plan, run, stays, why):
            return
        if plan.move(run):
            return
        left = Allocation(stays)
        if goes_on(run.job.spec, left) and plan.reshape(run, left, f"size: {why}"):
            return
    plan.evict(run, why)


def _replace_rest(plan: Plan, run: Run, stays: tuple[Part, ...], why: str) -> bool:
    """Move only the workers on nodes that are being drained."""
    spec, kept = run.job.spec, Allocation(stays)
    roles = tuple(
        replace(role, workers=missing, most=0)
        for role in spec.roles
        if (missing := run.allocation.count(role.name) - kept.count(role.name))
    )
    workers = run.allocation.count(WORKER) - kept.count(WORKER)
    if not workers:
        return False  # a gang of other roles alone is no shape
    with plan.ledger.confined(stays, spec.within), plan.in_time(run.remaining_s(plan.now)):
        parts = plan.placer(plan.ledger, Shape(workers, spec.resources, roles))
    return parts is not None and plan.reshape(run, Allocation((*stays, *parts)), f"place: {why}")
