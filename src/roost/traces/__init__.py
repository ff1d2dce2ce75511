"""Reading public traces, and generating workloads like them.

``read`` takes any of ``FORMATS``; ``write_workload`` writes Roost's own; ``bundled`` has a small
workload to play with. Generating is in ``roost.traces.generate``, which needs numpy.
"""

from roost.traces.formats import FORMATS, Format, bundled, read, read_cluster, recognise
from roost.traces.table import read_nodes, write_nodes, write_workload
from roost.traces.workload import BadRow, TraceJob, Workload

__all__ = [
    "FORMATS",
    "BadRow",
    "Format",
    "TraceJob",
    "Workload",
    "bundled",
    "read",
    "read_cluster",
    "read_nodes",
    "recognise",
    "write_nodes",
    "write_workload",
]
