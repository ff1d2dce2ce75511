"""Which sort of generation a run gets: pods as they are, or members that may come and go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from roost.core import JobId
from roost.kubernetes.jobs.blueprint import Blueprint
from roost.kubernetes.jobs.elastic import ElasticGeneration
from roost.kubernetes.jobs.generation import Generation
from roost.kubernetes.jobs.rendezvous import RendezvousServer
from roost.kubernetes.operator.workload import OperatorContext


class Means(NamedTuple):
    """What a run whose members may change needs besides.

    ``meeting`` is where its pods call; None: nowhere. ``keep`` writes a text down, and returns when
    whoever leads next will find it.
    """

    meeting: RendezvousServer | None
    keep: Callable[[str], Awaitable[None]]


def generation(
    context: OperatorContext, job: JobId, plan: Blueprint, means: Means, token: str = ""
) -> Generation:
    """A generation of pods that nobody has asked for yet."""
    if plan.elastic and means.meeting is not None:
        return ElasticGeneration(context, job, plan, token, meeting=means.meeting, keep=means.keep)
    return Generation(context, job, plan, token)
