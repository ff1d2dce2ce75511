"""What FGD's authors published: GPUs given away when 100 % were asked for, in percent.

Means and standard deviations over the seeds 42 to 51, from ``analysis_allo_discrete.csv`` of
hkust-adsl/kubernetes-scheduler-simulator (commit 8f3d641).
"""

from __future__ import annotations

#: Variant → mean and standard deviation of FGD.
FGD: dict[str, tuple[float, float]] = {
    "default": (95.23, 0.10),
    "gpushare40": (93.96, 0.07),
    "gpushare60": (91.25, 0.12),
    "gpushare80": (89.08, 0.10),
    "gpushare100": (86.64, 0.15),
    "multigpu20": (95.53, 0.15),
    "multigpu30": (96.36, 0.09),
    "multigpu40": (96.91, 0.10),
    "multigpu50": (97.09, 0.10),
    "gpuspec10": (94.66, 0.18),
    "gpuspec20": (94.66, 0.13),
    "gpuspec25": (93.91, 0.10),
    "gpuspec33": (87.84, 0.17),
    "cpu050": (95.00, 0.11),
    "cpu100": (95.21, 0.13),
    "cpu200": (94.82, 0.15),
    "cpu250": (93.20, 0.27),
}
