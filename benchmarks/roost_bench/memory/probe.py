"""What operators take beside their results: seen on the GPU itself, operator by operator."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import torch

__all__ = ["Probe"]

_LEAST = 1 << 16


class Probe(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes operators that held more than their results while they ran, or that made reserves."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        #: Operator and arguments, and the bytes that it held at most beside its results.
        self.seen: dict[str, int] = {}
        #: Sizes of results of operators that keep a reserve.
        self.results: dict[str, list[list[int]]] = {}

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call it, and look at the allocator before and after."""
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        made = operator(*args, **(kwargs or {}))
        after, most = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
        hidden = most - max(before, after)
        stays = after - before - sum(_size(one) for one in tree_leaves(made))
        if hidden >= _LEAST or stays >= _LEAST:
            words = f"{operator} {tree_map(_words, args)} {tree_map(_words, kwargs or {})}"
            self.seen[words] = max(hidden, self.seen.get(words, 0))
            self.results[words] = [list(one.shape) for one in _tensors(made)]
        elif "rnn" in str(operator) or "attention" in str(operator):
            words = f"{operator} {tree_map(_words, args)}"
            self.seen[words] = hidden
            self.results[words] = [[*one.shape, one.element_size()] for one in _tensors(made)]
        return made


def _tensors(value: Any) -> list[torch.Tensor]:
    return [one for one in tree_leaves(value) if isinstance(one, torch.Tensor)]


def _size(value: Any) -> int:
    return value.untyped_storage().nbytes() if isinstance(value, torch.Tensor) else 0


def _words(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    kind = str(value.dtype).removeprefix("torch.")
    packed = "" if value.is_contiguous() else ":strided"
    return f"{kind}{tuple(value.shape)}{packed}"
