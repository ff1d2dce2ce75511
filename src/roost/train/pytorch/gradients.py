"""Gradients of the workers: averaged in one piece, and looked at now and then.

DDP averages them in buckets while the backward pass runs; that is what a step uses as a rule. The
way here does it afterwards: then each worker's own gradient can be compared with the mean, and the
order of the sums is the same whenever it is done, which repeatable trainings need.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from roost.train.pytorch.groups import Group
from roost.train.pytorch.statistics import Statistics, since_look

#: With one worker, so many numbers of the gradient are compared from a step to the next.
_SAMPLE = 1 << 18


class Gradients:
    """The gradients of the parameters that are trained."""

    def __init__(self, parameters: list[torch.nn.Parameter], statistics: Statistics) -> None:
        self._parameters = parameters
        self._statistics = statistics
        self._earlier: tuple[int, torch.Tensor] | None = None

    def compares(self, step: int, group: Group, total: int) -> bool:
        """Whether the workers' gradients are compared in this step."""
        return group.size > 1 and since_look(step) == 0 and total >= group.size

    def average(self, group: Group) -> None:
        """Make every gradient the mean over the workers, in a fixed order."""
        present = torch.tensor([float(p.grad is not None) for p in self._parameters])
        present = present.to(group.device)
        group.add(present)
        used = [p for p, n in zip(self._parameters, present.tolist(), strict=True) if n > 0]
        for parameter in used:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        for run in _by_kind(used):
            flat = torch.cat([_gradient(parameter).reshape(-1) for parameter in run])
            flat /= group.size
            group.add(flat)
            start = 0
            for parameter in run:
                end = start + parameter.numel()
                _gradient(parameter).copy_(flat[start:end].view_as(parameter))
                start = end

    def squared(self) -> torch.Tensor:
        """The squared length of the gradient."""
        found = [p.grad.detach() for p in self._parameters if p.grad is not None]
        norms = torch._foreach_norm(found)  # noqa: SLF001 - what torch's own clipping uses
        return torch.stack([norm.double() for norm in norms]).square().sum()

    def compare(self, group: Group, mine: torch.Tensor, count: int, total: int) -> None:
        """Learn from a worker's own squared gradient and from that of the mean, as it is now."""
        told = torch.stack([mine, torch.tensor(1.0 / count, device=mine.device).double()])
        told /= group.size
        group.add(told)
        few, many = (1.0 / float(told[1]), float(told[0])), (float(total), float(self.squared()))
        self._statistics.look(few, many)

    def follow(self, step: int, total: int) -> None:
        """With one worker: compare a part of the gradient with that of the step before."""
        if since_look(step) > 1:
            return
        now = self._part()
        if since_look(step) == 0 or self._earlier is None or self._earlier[0] != total:
            self._earlier = (total, now.clone()) if since_look(step) == 0 else None
            return
        before = self._earlier[1]
        self._earlier = None
        alone = (float(before.square().sum()) + float(now.square().sum())) / 2.0
        both = float(((before + now) / 2.0).square().sum())
        self._statistics.look((float(total), alone), (2.0 * total, both))

    def _part(self) -> torch.Tensor:
        pieces, left = [], _SAMPLE
        for parameter in self._parameters:
            if parameter.grad is not None and left > 0:
                pieces.append(parameter.grad.detach().reshape(-1)[:left].float())
                left -= pieces[-1].numel()
        return torch.cat(pieces) if pieces else torch.zeros(1)


def _by_kind(parameters: Iterable[torch.nn.Parameter]) -> list[list[torch.nn.Parameter]]:
    runs: dict[tuple[torch.dtype, torch.device], list[torch.nn.Parameter]] = {}
    for parameter in parameters:
        runs.setdefault((parameter.dtype, parameter.device), []).append(parameter)
    return list(runs.values())


def _gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None  # noqa: S101 - made so before
    return parameter.grad
