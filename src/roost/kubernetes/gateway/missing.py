"""What a cluster of Kubernetes does not have, said where somebody asks for it."""

from __future__ import annotations

from roost.errors import Conflict
from roost.jobfile import JobFile
from roost.jobs.requests import CloneRequest
from roost.store.rows import JobRow, RestorePointRow


def unavailable(what: str) -> Conflict:
    """Why something cannot be had."""
    return Conflict(
        f"{what}: not on Kubernetes, where checkpoints are in volumes of the job's own and devices "
        "belong to their kubelets"
    )


class NoSnapshots:
    """Snapshots, where there are none."""

    async def take(
        self,
        row: JobRow,
        name: str,
        actor: str,  # noqa: ARG002 - whoever asks
        key: str = "",  # noqa: ARG002 - and however often
    ) -> RestorePointRow | None:
        """Say that there is none."""
        raise unavailable(f"snapshot {row.id}@{name}")

    async def job_of(self, clone: CloneRequest) -> JobFile:
        """Say that there is none."""
        raise unavailable(f"snapshot {clone.point.job}@{clone.point.name}")

    async def delete(self, point: RestorePointRow, actor: str) -> None:  # noqa: ARG002 - whoever asks
        """Say that there is none."""
        raise unavailable(f"snapshot {point.job}@{point.name}")
