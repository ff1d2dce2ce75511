"""Rules about nodes that selectors and amounts cannot say: other pods, volumes, claims of devices.

The core plans with pools of nodes and with books (``objects.constraints``, ``core.extras``). What
depends on the rest of the cluster, and changes with every pod that is placed, is for a
``NodeFilter``: it says which nodes a pod must not go to now, keeps in mind what was decided, and
does what has to be done before the pod is bound.
"""

from __future__ import annotations

from roost.kubernetes.client.kinds import NAMESPACES
from roost.kubernetes.filters.claims import KINDS as CLAIM_KINDS
from roost.kubernetes.filters.claims import ClaimsFilter
from roost.kubernetes.filters.neighbours import NeighbourFilter
from roost.kubernetes.filters.turns import FilterFactory
from roost.kubernetes.filters.volumes import VolumeFilter

#: The filters of an operator, in the order in which they are asked; one line for each.
NODE_FILTERS: tuple[FilterFactory, ...] = (
    FilterFactory((NAMESPACES,), lambda _context: NeighbourFilter()),
    FilterFactory(CLAIM_KINDS, ClaimsFilter),
    FilterFactory(VolumeFilter.kinds, VolumeFilter),
)
