"""Profile tables small enough to reckon with: an application of three epochs on three kinds."""

from __future__ import annotations

from pathlib import Path

from roost.traces.profiles import MACHINES, Tables, read_profiles

NAME = "toy"
#: Seconds that one sample takes on a GPU of each kind.
SAMPLE_S = {"T4": 0.004, "RTX2080Ti": 0.002, "A100": 0.001}
#: Seconds of every step, and of agreeing between GPUs of a node and between nodes.
STEP_S, NEAR_S, FAR_S = 0.05, 0.01, 0.1
LOCALS = (8, 16, 64)
PLACEMENTS = ("1", "2", "3", "4", "8", "11", "12", "44", "48", "88")
#: Work at the end of each epoch, and squared norm and variance of the gradient in it.
EPOCHS = ((1000.0, 1.0, 1.0), (2000.0, 1.0, 3.0), (3000.0, 1.0, 9.0))
BATCHES = (16, 64, 256)


def step(kind: str, nodes: int, workers: int, local: int) -> tuple[float, float]:
    """Seconds of a step and of its synchronisation, as the tables have it."""
    sync = FAR_S if nodes > 1 else NEAR_S if workers > 1 else 0.0
    return STEP_S + SAMPLE_S[kind] * local + sync, sync


def write_profiles(folder: Path, name: str = NAME) -> Path:
    """Write the tables of an application into a folder of profiles."""
    own = folder / name
    own.mkdir(parents=True)
    for kind, machine in MACHINES.items():
        lines = ["placement,local_bsz,step_time,sync_time"]
        for placement in PLACEMENTS:
            for local in LOCALS:
                times = step(kind, len(placement), sum(map(int, placement)), local)
                lines.append(f"{placement},{local},{times[0]},{times[1]}")
        (own / f"placements-{machine}.csv").write_text("\n".join(lines) + "\n")
        lines = ["local_bsz,step_time,sync_time,num_nodes,num_replicas"]
        for nodes, workers in ((3, 3), (3, 24), (6, 6), (6, 24)):
            for local in LOCALS[:2]:
                times = step(kind, nodes, workers, local)
                lines.append(f"{local},{times[0]},{times[1]},{nodes},{workers}")
        (own / f"scalability-{machine}.csv").write_text("\n".join(lines) + "\n")
    for batch in BATCHES:
        lines = ["progress,iteration,metric,grad_sqr,grad_var"]
        for number, (progress, norm, variance) in enumerate(EPOCHS):
            later = progress + (batch != BATCHES[0])  # the least of all counts
            lines.append(f"{later},{number + 1},0.5,{norm},{variance}")
        (own / f"validation-{batch}.csv").write_text("\n".join(lines) + "\n")
    return folder


def toy_tables(folder: Path) -> Tables:
    """Write the tables and read them."""
    return read_profiles(write_profiles(folder), [NAME])
