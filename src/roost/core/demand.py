"""What workers usually ask for, learned from the jobs that come.

Placers that keep room for what is likely to come ask for the *typical* needs: the most frequent
ones that together are 95 % of all workers asked for, each with its part of them (Weng et al., FGD,
USENIX ATC 2023). They change only when the workload has grown by a tenth, so that what was worked
out for them can be kept meanwhile.

What is known beforehand (``counted``, of a trace) counts as if those jobs had come first: it says
what is typical from the first job on, and fades as others come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from roost.core.spec import JobSpec, Resources

#: The part of all workers that the typical needs cover.
_COVERED = 0.95
#: How much the workload grows before what is typical is looked at anew, and by how many at least.
_GROWTH, _LEAST = 1.1, 10
#: How many different needs are counted; beyond, all counts are halved and the rarest go.
_MANY = 4096


class Need(NamedTuple):
    """What matters of a worker to those who come after it."""

    cpu_milli: int
    share_milli: int
    gpus: int
    kinds: tuple[str, ...]

    @property
    def gpu_milli(self) -> int:
        """Its GPUs in milli-GPUs."""
        return self.gpus * self.share_milli


class Typical(NamedTuple):
    """The typical needs, the most frequent first, each with its part; the parts add up to 1."""

    version: int = 0
    needs: tuple[tuple[Need, float], ...] = ()


#: How many workers of each need are known, the most frequent first.
Counts = tuple[tuple[Need, int], ...]


def counted(specs: Iterable[JobSpec]) -> Counts:
    """What the workers of some jobs ask for; of very many needs the most frequent."""
    found: dict[Need, int] = {}
    for spec in specs:
        for need, workers in asked_for(spec):
            key = _need(need)
            found[key] = found.get(key, 0) + workers
    return tuple(sorted(found.items(), key=_rank)[:_MANY])


def asked_for(spec: JobSpec) -> Iterable[tuple[Resources, int]]:
    """What the workers of a job ask for, and how many ask for it."""
    yield spec.resources, spec.workers.min
    for role in spec.roles:
        yield role.resources, role.workers


class Demand:
    """Counts what workers ask for."""

    def __init__(self) -> None:
        self._counts: dict[Need, int] = {}
        self._total = 0
        self._before: Counts = ()
        self._looked_at = 0.0
        self._typical = Typical()

    def note(self, need: Resources, workers: int = 1) -> None:
        """Count workers that were asked for."""
        key = _need(need)
        self._counts[key] = self._counts.get(key, 0) + workers
        self._total += workers
        if len(self._counts) > _MANY:
            self._counts = {key: n // 2 for key, n in self._counts.items() if n > 1}
            self._total = sum(self._counts.values())
            self._looked_at = 0.0

    @property
    def counts(self) -> Mapping[Need, int]:
        """How many workers asked for each need, in the order in which these came."""
        return self._counts

    def recall(self, counts: Mapping[Need, int]) -> None:
        """Count what was counted before a restart, and nothing else."""
        self._counts = dict(counts)
        self._total = sum(self._counts.values())

    def typical(self, before: Counts = ()) -> Typical:
        """What is typical now, if these came ``before`` all that was counted here."""
        if before is not self._before:
            if before != self._before:
                self._looked_at = 0.0
            self._before = before
        if self._total >= self._looked_at:
            earlier = sum(count for _, count in before)
            self._looked_at = max(
                (earlier + self._total) * _GROWTH - earlier, float(self._total + _LEAST)
            )
            needs = self._most_frequent()
            if needs != self._typical.needs:
                self._typical = Typical(self._typical.version + 1, needs)
        return self._typical

    def _most_frequent(self) -> tuple[tuple[Need, float], ...]:
        # Of equally frequent ones the larger first, as FGD does.
        counts = self._counts
        if self._before:
            counts = dict(counts)
            for need, count in self._before:
                counts[need] = counts.get(need, 0) + count
        ranked = sorted(counts.items(), key=_rank)
        total = sum(counts.values())
        chosen: list[tuple[Need, int]] = []
        covered = 0
        for need, count in ranked:
            chosen.append((need, count))
            covered += count
            if covered >= _COVERED * total:
                break
        return tuple((need, count / covered) for need, count in chosen)


def _need(need: Resources) -> Need:
    return Need(need.cpu_milli, need.share_milli, need.gpus, need.kinds)


def _rank(each: tuple[Need, int]) -> tuple[int, tuple[int, int, int, tuple[str, ...]]]:
    return -each[1], _negated(each[0])


def _negated(need: Need) -> tuple[int, int, int, tuple[str, ...]]:
    return -need.cpu_milli, -need.share_milli, -need.gpus, need.kinds
