"""HiveD's configuration: its physical cluster as nodes, its virtual clusters as queues with cells.

HiveD is the system in which promises of cells were published (Zhao et al., "HiveD: Sharing a GPU
Cluster for Deep Learning with Guarantees", OSDI 2020). What reads the file is ``config``, what its
cells are to Roost is in ``cells``. Whether promises fit the cluster that is there is for the core.
"""

from __future__ import annotations

from roost.hived.cells import HivedCluster, read_hived
from roost.hived.config import looks_like_hived

__all__ = ["HivedCluster", "looks_like_hived", "read_hived"]
