"""A loss that stands in for the script's own.

What a script makes of its model's output is not known before it does so. It is guessed from the
output and the batch: a loss that the model itself gives, the cross entropy of classes, the mean of
squares against a target of the same shape, else the mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.utils._pytree import tree_leaves

import torch
from torch import nn

__all__ = ["stand_in"]


def stand_in(output: Any, batch: Iterable[torch.Tensor]) -> torch.Tensor:
    """A loss of one number from which the backward pass can begin."""
    given = getattr(output, "loss", None)
    if isinstance(given, torch.Tensor) and given.numel() == 1:
        return given
    made = [one for one in tree_leaves(output) if isinstance(one, torch.Tensor)]
    graded = [one for one in made if one.requires_grad]
    if not graded:
        raise ValueError("the model's output does not depend on what is trained")
    tensors = list(batch)
    losses = [_loss(one, tensors) for one in graded]
    return torch.stack([one.float() for one in losses]).sum() if losses[1:] else losses[0]


def _loss(output: torch.Tensor, batch: list[torch.Tensor]) -> torch.Tensor:
    if output.numel() == 1:
        return output.reshape(())
    for target in batch:
        if target.is_floating_point() and target.shape == output.shape:
            return nn.functional.mse_loss(output, target)
    whole = [one for one in batch if not one.is_floating_point() and one.dtype != torch.bool]
    for target in whole:
        if output.dim() > 1 and target.shape == output.shape[:-1]:
            return nn.functional.cross_entropy(output.flatten(0, -2), target.flatten().long())
        if output.dim() > 1 and target.shape == (output.shape[0], *output.shape[2:]):
            return nn.functional.cross_entropy(output, target.long())
    return output.float().mean()
