"""Elastic training with PyTorch.

    with train.elastic(model, optimizer, dataset, batch_size=256, epochs=3) as run:
        for inputs, answers in run:
            loss = loss_function(run.model(inputs), answers)
            run.step(loss)

The batch size is that of all workers together and stays what it is when workers come and go. At a
step boundary the workers agree, by a small round that runs beside the training, on what Roost asks
for: other members, a checkpoint, to leave the GPU, to stop. Workers that stay keep their process;
a worker that joins gets the state of one that trains. When one is lost, the others take the step
again without it. Outside of Roost, and under ``torchrun``, the same script runs as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, Self

import torch
from roost.train.members import Misuse
from roost.train.pytorch.buffers import Buffers
from roost.train.pytorch.feeder import Collate, Feeder, permutation
from roost.train.pytorch.gradients import Gradients
from roost.train.pytorch.groups import Hello, shape_of
from roost.train.pytorch.member import ModelFront, TrainingMember
from roost.train.pytorch.sampler import Sampler, Share
from roost.train.pytorch.state import Stateful, TrainingState
from torch import nn

__all__ = ["Elastic", "elastic"]

_ENDLESS = 1 << 40


class _Done:
    """How many trainings of this script are over; the next has checkpoints of its own."""

    loops: ClassVar[int] = 0


class Elastic:
    """A training that survives changes of its workers; see the module.

    ``batch_size`` is that of all workers together. The end is given in ``epochs``, in ``steps``
    (worker 0 says; a resumed training keeps its own) or both. ``loss_total`` says that the loss is
    a sum over the samples, not their mean. ``collate`` makes a batch of a list of samples, and
    ``unused`` allows for parameters that a step does not use. ``save_every_s`` is the time between
    checkpoints; left out, it follows from what one costs.
    """

    def __init__(  # noqa: PLR0913 - the few lines a script needs, all by name
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        dataset: Sized,
        *,
        batch_size: int,
        epochs: int | None = None,
        steps: int | None = None,
        seed: int = 0,
        scheduler: Stateful | None = None,
        device: torch.device | str | None = None,
        loss_total: bool | None = None,
        collate: Collate | None = None,
        unused: bool = False,
        save_every_s: float | None = None,
    ) -> None:
        trained = _trained(model, optimizer)
        self.device = torch.device(device) if device else trained[0].device
        model.to(self.device)
        self._feeder = Feeder(dataset, collate, self.device)
        rounds = epochs if epochs is not None else _ENDLESS if steps else 1
        sampler = Sampler(len(dataset), batch_size, rounds, seed, permutation)
        self._training = TrainingState(model, optimizer, scheduler, sampler)
        self._training.goal = steps
        self._buffers = Buffers(model)
        self._gradients = Gradients(trained, self._training.statistics)
        self._summed = bool(loss_total)
        self.model = ModelFront(model)
        hello = Hello(_alike(self._training), self.device, 1 + _Done.loops)
        self._crew = TrainingMember(
            self._training, self.model, hello, unused=unused, every_s=save_every_s
        )
        self._state = "new"
        #: What the batch that was handed out is of; None between steps.
        self._share: Share | None = None
        self._pushed = False
        #: Whether there is nothing to average once the backward pass is over.
        self._ddp = True
        self._lost: RuntimeError | None = None

    @property
    def step_number(self) -> int:
        """How many steps have been taken, by all workers together."""
        return max(0, self._training.step)

    @property
    def steps(self) -> int:
        """How many there are in all."""
        return self.step_number + self._training.left

    @property
    def epoch(self) -> int:
        """The epoch, from 0."""
        return self._training.sampler.epoch

    @property
    def rank(self) -> int:
        """The number of this worker now, from 0."""
        return self._crew.group.rank

    @property
    def size(self) -> int:
        """How many workers train together now."""
        return self._crew.group.size

    @property
    def version(self) -> int:
        """The version of the members that train together now."""
        return self._crew.group.version

    @property
    def counted(self) -> int:
        """How many samples of the batch count; 0 when it only keeps the others company."""
        return 0 if self._share is None else self._share.counted

    def __enter__(self) -> Self:
        if self._state != "new":
            raise Misuse("a run is entered once; make a new one with train.elastic(...)")
        self._state = "entered"
        try:
            self._crew.join()
        except BaseException:
            self._crew.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None or issubclass(kind, SystemExit):
            self._crew.checkpoints.wait()
        _Done.loops += kind is None
        self._state = "closed"
        self._crew.close()

    def __iter__(self) -> Iterator[Any]:
        if self._state == "new":
            raise Misuse("use it as `with train.elastic(...) as run: for batch in run: ...`")
        if self._state != "entered":
            raise Misuse("one loop over a run goes through all epochs; there cannot be two")
        self._state = "looping"
        return self._batches()

    def backward(self, loss: torch.Tensor) -> None:
        """Compute the gradient of the global batch; ``step()`` without a loss comes next."""
        share = self._share
        if share is None:
            raise Misuse("one step per batch: it was taken already, or no loop runs")
        if self._pushed:
            raise Misuse("run.backward(loss) was called already for this batch; call run.step()")
        _check_loss(loss)
        if not self.model.called:
            raise Misuse("compute the loss with run.model(...), not with the model itself")
        self._pushed = True
        if self.model.failed is not None:
            self._crew.check_lost(self.model.failed)
            self._lost = self.model.failed
            return
        self._crew.reporter.loss = loss.detach()
        waiting = self._crew.reporter.waiting
        weight = float(self.size) if self._summed else share.counted * self.size / share.total
        try:
            (loss * weight if weight != 1.0 else loss).backward()  # type: ignore[no-untyped-call]
            if not self._ddp:
                waiting.computed()
                self._average(share, weight)
            waiting.ended()
        except RuntimeError as error:
            self._crew.check_lost(error)
            self._lost = error

    def step(self, loss: torch.Tensor | None = None) -> bool:
        """Take the step that this batch gives; False if it must be taken again.

        It must be when a worker was lost: the loop then yields the samples of the step once more,
        divided among those that are left.
        """
        if loss is not None:
            self.backward(loss)
        if self._share is None:
            raise Misuse("one step per batch: it was taken already, or no loop runs")
        if not self._pushed:
            raise Misuse("run.step() needs run.backward(loss) before it, once per batch")
        if self._lost is None and self._buffers and self.size > 1:
            self._align_buffers()
        lost, self._lost, self._share = self._lost, None, None
        if lost is not None:
            self._buffers.put_back()
            self._crew.recover(lost)
            return False
        self._move()
        return True

    def _batches(self) -> Iterator[Any]:
        training = self._training
        while True:
            self._crew.boundary()
            if not training.left:
                break
            share = training.sampler.share(self.rank, self.size)
            training.seed_step(self.rank)
            batch = self._feeder.batch(share.indices)
            if (states := self._crew.reporter.check(batch, self.size)) is not None:
                self.model.before = partial(self._crew.reporter.predict, states)
            self._ddp = True
            if self.size > 1:
                self._choose(share)
                self._buffers.keep(self._crew.group)
            self._share, self._pushed, self.model.called = share, False, False
            self.model.failed = None
            yield batch
            if self._share is not None:
                raise Misuse("every batch needs run.step(loss) before the next one")
        self._crew.finish()

    def _move(self) -> None:
        training = self._training
        if self.size == 1:
            self._gradients.follow(training.step, training.sampler.total)
        training.optimizer.step()
        training.optimizer.zero_grad(set_to_none=True)
        if training.scheduler is not None:
            training.scheduler.step()
        training.sampler.advance()
        training.step += 1
        self._crew.stepped()

    def _choose(self, share: Share) -> None:
        """Whether DDP averages the gradients of this step, or we do."""
        looks = self._gradients.compares(self._training.step, self._crew.group, share.total)
        if looks:
            self._crew.reporter.waiting.skip()
        self._ddp = not (looks or torch.are_deterministic_algorithms_enabled())
        wrapper: Any = self.model.behind
        if wrapper.require_backward_grad_sync != self._ddp:  # to set it takes a while
            wrapper.require_backward_grad_sync = self._ddp

    def _average(self, share: Share, weight: float) -> None:
        group, gradients = self._crew.group, self._gradients
        looks = gradients.compares(self._training.step, group, share.total) and not self._summed
        mine = gradients.squared() / weight**2 if looks else None
        gradients.average(group)
        if mine is not None:
            gradients.compare(group, mine, share.counted, share.total)

    def _align_buffers(self) -> None:
        try:
            self._buffers.align(self._crew.group)
        except RuntimeError as error:
            self._crew.check_lost(error)
            self._lost = error


def elastic(
    model: nn.Module, optimizer: torch.optim.Optimizer, dataset: Sized, **options: Any
) -> Elastic:
    """A training that survives changes of its workers: see ``Elastic`` for the options."""
    return Elastic(model, optimizer, dataset, **options)


def _alike(training: TrainingState) -> dict[str, str]:
    """What must be the same in all workers."""
    sampler = training.sampler
    return {
        "the number of samples": str(sampler.length),
        "batch_size": str(sampler.batch),
        "epochs": str(sampler.epochs),
        "seed": str(sampler.seed),
        "the optimiser": type(training.optimizer).__name__,
        **shape_of(training.model),
    }


def _trained(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise Misuse("the model has no parameters to train")
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if not held.intersection(map(id, parameters)):
        raise Misuse("the optimiser holds no parameter of this model: make it from this model's")
    return parameters


def _check_loss(loss: Any) -> None:
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        raise Misuse("run.step(loss) needs the loss as a tensor of one number, e.g. its mean")
    if not loss.requires_grad:
        raise Misuse("the loss does not depend on the model: was it computed under no_grad?")
