"""Which samples a step trains on, and which of them are this worker's.

An epoch is a permutation that depends on the seed and the epoch alone; a position in samples says
how much of it is done. A global batch is the next ``batch`` samples, however many workers share it:
so workers may come and go, and each sample of each epoch is still used exactly once. The last batch
of an epoch may be short. The standard library is all that this needs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from roost.train.members import Misuse

#: From the number of samples and a seed to the order in which they are used.
Shuffle = Callable[[int, int], Sequence[int]]


class Share(NamedTuple):
    """The samples of one worker in one step."""

    indices: Sequence[int]
    #: How many of them count; 0 when the worker only repeats a sample to keep the others company.
    counted: int
    #: How many samples the step has over all workers.
    total: int


def shuffled(length: int, seed: int) -> Sequence[int]:
    """A permutation by the standard library's generator."""
    order = list(range(length))
    random.Random(seed).shuffle(order)  # noqa: S311 - repeatable, not secret
    return order


def bounds(total: int, rank: int, size: int) -> tuple[int, int]:
    """The part of ``total`` things that is the worker's; parts differ by one at most."""
    most, extra = divmod(total, size)
    start = rank * most + min(rank, extra)
    return start, start + most + (rank < extra)


class Sampler:
    """Walks through the epochs of a dataset, one global batch at a time."""

    def __init__(
        self, length: int, batch: int, epochs: int, seed: int = 0, shuffle: Shuffle = shuffled
    ) -> None:
        _check(length, "a dataset needs at least one sample")
        _check(batch, "batch_size is the samples of a step over all workers, at least 1")
        _check(epochs, "epochs is how often each sample is used, at least 1")
        self.length, self.batch, self.epochs, self.seed = length, batch, epochs, seed
        self.epoch = 0
        #: How many samples of this epoch are done.
        self.position = 0
        self._shuffle = shuffle
        self._order: tuple[int, Sequence[int]] | None = None

    @property
    def over(self) -> bool:
        """Whether all epochs are done."""
        return self.epoch >= self.epochs

    @property
    def epochs_done(self) -> float:
        """Epochs that are done, with the part of this one."""
        return self.epoch + self.position / self.length

    @property
    def steps(self) -> int:
        """How many steps all epochs have."""
        return self.epochs * -(-self.length // self.batch)

    @property
    def left(self) -> int:
        """How many steps are to come."""
        if self.over:
            return 0
        here = -(-(self.length - self.position) // self.batch)
        return here + (self.epochs - self.epoch - 1) * -(-self.length // self.batch)

    @property
    def total(self) -> int:
        """How many samples the next global batch has; 0 when all is done."""
        return 0 if self.over else min(self.batch, self.length - self.position)

    def share(self, rank: int, size: int) -> Share:
        """What a worker trains on in the next step.

        A batch with fewer samples than workers, the last of an epoch, leaves some without: they
        get the first sample again, none of which counts.
        """
        total = self.total
        order = self._order_of_epoch()
        start, end = bounds(total, rank, size)
        if start == end:
            return Share(order[self.position : self.position + 1], 0, total)
        return Share(order[self.position + start : self.position + end], end - start, total)

    def advance(self) -> None:
        """The next global batch is done."""
        self.position += self.total
        if self.position >= self.length:
            self.epoch, self.position = self.epoch + 1, 0

    def state(self) -> dict[str, int]:
        """Where it stands."""
        names = ("length", "seed", "epoch", "position")
        return {name: int(getattr(self, name)) for name in names}

    def load(self, state: Mapping[str, int]) -> None:
        """Stand where another stood; raises Misuse if that one walked through something else."""
        for name, what in (("length", "samples in the dataset"), ("seed", "as seed")):
            if state[name] != getattr(self, name):
                raise Misuse(f"it began with {state[name]} {what}, not {getattr(self, name)}")
        self.epoch, self.position = state["epoch"], state["position"]

    def _order_of_epoch(self) -> Sequence[int]:
        if self._order is None or self._order[0] != self.epoch:
            self._order = (self.epoch, self._shuffle(self.length, self.seed + self.epoch))
        return self._order[1]


def _check(number: object, otherwise: str) -> None:
    if not isinstance(number, int) or number < 1:
        raise Misuse(f"{otherwise}; got {number!r}")
