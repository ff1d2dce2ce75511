"""Running means and the like: what a model keeps besides its parameters.

A forward pass changes them in each worker on its own. They follow those of worker 0 after every
step, and a step that has to be taken again begins with them as they were before it.
"""

from __future__ import annotations

from itertools import groupby

import torch
from roost.train.pytorch.groups import Group
from torch import nn


class Buffers:
    """The buffers of a model; those of a kind travel as one."""

    def __init__(self, model: nn.Module) -> None:
        buffers = sorted(filter(torch.Tensor.numel, model.buffers()), key=_kind)
        self._runs = [list(run) for _, run in groupby(buffers, _kind)]
        #: As they were after the last step, and in which group.
        self._kept: list[torch.Tensor] = []
        self._group: Group | None = None

    def __bool__(self) -> bool:
        return bool(self._runs)

    def keep(self, group: Group) -> None:
        """A step begins: remember them, unless they are known from the last one."""
        if self._group is not group:
            self._kept, self._group = [_flat(run) for run in self._runs], group

    def put_back(self) -> None:
        """The step that began has to be taken again."""
        for run, kept in zip(self._runs, self._kept, strict=True):
            _spread(kept, run)

    def align(self, group: Group) -> None:
        """Let them be those of worker 0; whatever is raised, what was kept stays."""
        now = [_flat(run) for run in self._runs]
        for run, flat in zip(self._runs, now, strict=True):
            group.give(flat, 0)
            if group.rank:
                _spread(flat, run)
        self._kept = now


def _kind(buffer: torch.Tensor) -> str:
    return f"{buffer.dtype} {buffer.device}"


def _flat(run: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([buffer.detach().reshape(-1) for buffer in run])


def _spread(flat: torch.Tensor, run: list[torch.Tensor]) -> None:
    pieces = torch.split(flat, [buffer.numel() for buffer in run])
    with torch.no_grad():
        for buffer, piece in zip(run, pieces, strict=True):
            buffer.copy_(piece.view_as(buffer))
