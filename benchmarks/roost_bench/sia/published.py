"""What others have published of Sia's benchmark, to print beside what is measured here.

Means, and their deviation from workload to workload, over the 8 to 10 workloads of each trace:
Jayaram Subramanya et al., "Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling",
SOSP 2023, table 3 (64 GPUs of three kinds) and table 4 (64 T4). The traces that are called saturn
here are those of Helios there.
"""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """A row of a published table, in hours; None where it says nothing."""

    mean_jct_h: float
    spread_h: float | None = None
    p99_jct_h: float | None = None
    makespan_h: float | None = None
    gpu_hours_per_job: float | None = None


HETEROGENEOUS: dict[tuple[str, str], Published] = {
    ("philly", "sia"): Published(0.6, 0.1, 9.5, 14.2, 4.0),
    ("philly", "pollux"): Published(1.0, 0.1, 14.9, 24.5, 5.6),
    ("philly", "gavel"): Published(1.9, 0.3, 30.0, 33.8, 9.0),
    ("saturn", "sia"): Published(0.7, 0.1, 10.9, 14.9, 4.8),
    ("saturn", "pollux"): Published(1.0, 0.2, 15.0, 25.5, 5.9),
    ("saturn", "gavel"): Published(2.5, 0.9, 38.7, 43.0, 12.1),
    ("newtrace", "sia"): Published(0.7, 0.1, 4.6, 52.2, 3.0),
    ("newtrace", "pollux"): Published(1.5, 0.2, 10.3, 62.3, 3.4),
    ("newtrace", "gavel"): Published(11.3, 3.0, 98.0, 110.0, 6.4),
}
HOMOGENEOUS: dict[tuple[str, str], Published] = {
    ("philly", "sia"): Published(1.9, None, 18.1, 21.4, 8.4),
    ("philly", "pollux"): Published(2.0),
    ("philly", "gavel"): Published(4.3),
}
