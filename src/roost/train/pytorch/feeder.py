"""From sample numbers to a batch on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

import torch
from roost.train.members import Misuse

Collate = Callable[[list[Any]], Any]


def permutation(length: int, seed: int) -> Sequence[int]:
    """A permutation by torch's generator: quick for millions of samples."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(length, generator=generator)
    return _Numbers(order)


class _Numbers(Sequence[int]):
    """Numbers in a tensor, which is a tenth of the size of a list."""

    def __init__(self, numbers: torch.Tensor) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        found = self.numbers[index]
        return _Numbers(found) if isinstance(index, slice) else int(found)


class Feeder:
    """Fetches the samples of a step."""

    def __init__(self, dataset: Any, collate: Collate | None, device: torch.device) -> None:
        sized = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        if isinstance(dataset, IterableDataset) or not sized:
            loader = isinstance(dataset, DataLoader)
            raise Misuse(
                "hand over the dataset itself, not a DataLoader: batches are made of it anew when "
                "workers come and go"
                if loader
                else "the dataset needs a length and samples by number (a map-style dataset): "
                "a stream cannot be divided anew when workers come and go"
            )
        if not len(dataset):
            raise Misuse("the dataset is empty")
        self.dataset: Any = dataset
        self._collate, self._device = collate, device
        plain = type(dataset) is TensorDataset and collate is None
        self._tensors = dataset.tensors if plain else None

    def batch(self, indices: Sequence[int]) -> Any:
        """The samples together, on the device."""
        if self._tensors is not None:
            which = _as_tensor(indices)
            found: Any = [tensor[which.to(tensor.device)] for tensor in self._tensors]
        elif hasattr(self.dataset, "__getitems__"):
            found = (self._collate or default_collate)(self.dataset.__getitems__(list(indices)))
        else:
            found = (self._collate or default_collate)([self.dataset[i] for i in indices])
        return moved(found, lambda tensor: tensor.to(self._device, non_blocking=True))


def moved(value: Any, move: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same with every tensor in it moved."""
    if isinstance(value, torch.Tensor):
        return move(value)
    if isinstance(value, dict):
        return {name: moved(inner, move) for name, inner in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(inner, move) for inner in value))
    if isinstance(value, list | tuple):
        return type(value)(moved(inner, move) for inner in value)
    return value


def _as_tensor(indices: Sequence[int]) -> torch.Tensor:
    return indices.numbers if isinstance(indices, _Numbers) else torch.tensor(list(indices))
