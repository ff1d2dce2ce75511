"""The state of a PyTorch training as one value: copied aside, written, read, given to others.

It is the model, the optimiser, the scheduler, where the sampler stands and the step. Random numbers
are not in it: every step begins with generators seeded from the seed, the step and the rank, so a
step that is repeated or resumed draws the same. Tensors travel as a few flat runs of bytes.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from typing import Any, BinaryIO, Protocol

import torch
from roost.train.members import Misuse
from roost.train.pytorch.groups import Group
from roost.train.pytorch.sampler import Sampler
from roost.train.pytorch.statistics import Statistics
from torch import nn

#: Stands for a tensor in a tree; followed by its number.
_MARK = "\0tensor"
_FORMAT = 1
#: Smaller tensors travel together, up to so many bytes at once.
_CHUNK = 32 << 20
_ALIGN = 16
#: Odd numbers without a pattern, so that seeds of neighbouring steps and ranks are far apart.
_MIX = (0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB)


class Stateful(Protocol):
    """A scheduler of the learning rate, as torch has them."""

    def step(self) -> Any:
        """A step was taken."""

    def state_dict(self) -> dict[str, Any]:
        """What to keep."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Go on from there."""


class TrainingState:
    """Everything that a step changes."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        scheduler: Stateful | None,
        sampler: Sampler,
    ) -> None:
        self.model, self.optimizer, self.scheduler = model, optimizer, scheduler
        self.sampler = sampler
        self.statistics = Statistics()
        #: The step that is the last, whatever the epochs; None if they say.
        self.goal: int | None = None
        #: Steps taken; -1 as long as there is nothing to give to others.
        self.step = -1

    @property
    def left(self) -> int:
        """How many steps are to come."""
        left = self.sampler.left
        return left if self.goal is None else max(0, min(left, self.goal - max(0, self.step)))

    def content(self) -> dict[str, Any]:
        """All of it, with the very tensors that are in use."""
        return {
            "format": _FORMAT,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict() if self.scheduler else None,
            "sampler": self.sampler.state(),
            "statistics": self.statistics.state(),
            "step": self.step,
            "goal": self.goal,
        }

    def load(self, content: dict[str, Any]) -> None:
        """Become what another was; raises Misuse when that was something else."""
        if content.get("format") != _FORMAT:
            raise Misuse("it was not written by this version of roost.train")
        _compare(content["model"], self.model.state_dict())
        try:
            self.optimizer.load_state_dict(content["optimizer"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise Misuse(f"it holds another optimiser: {error}") from None
        self.sampler.load(content["sampler"])
        self.model.load_state_dict(content["model"])
        if self.scheduler is not None and content["scheduler"] is not None:
            self.scheduler.load_state_dict(content["scheduler"])
        self.statistics.load(content["statistics"])
        self.step, self.goal = int(content["step"]), content["goal"]

    def seed_step(self, rank: int) -> None:
        """Let this step draw its own random numbers, whatever was drawn before."""
        mixed = self.sampler.seed * _MIX[0] + self.step * _MIX[1] + rank * _MIX[2]
        seed = (mixed ^ mixed >> 31) & 0x7FFF_FFFF_FFFF_FFFF
        # torch.manual_seed takes a hundred times as long where CUDA is not in use.
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.manual_seed(seed)
        random.seed(seed)


class Aside:
    """A copy of a state in host memory; its room is used again for the next."""

    def __init__(self) -> None:
        self._room: list[torch.Tensor] = []

    def take(self, content: dict[str, Any]) -> dict[str, Any]:
        """Copy all tensors; the copy is good until the next is taken."""
        tree, tensors = split(content)
        if [_kind(tensor) for tensor in self._room] != [_kind(tensor) for tensor in tensors]:
            self._room = [_host_like(tensor) for tensor in tensors]
        on_gpu = False
        with torch.no_grad():
            for copy, tensor in zip(self._room, tensors, strict=True):
                copy.copy_(tensor, non_blocking=tensor.is_cuda)
                on_gpu |= tensor.is_cuda
        if on_gpu:
            torch.cuda.synchronize()
        return dict(joined(tree, self._room))


def write(content: dict[str, Any], file: BinaryIO) -> None:
    """Write a state."""
    torch.save(content, file)


def spread(training: TrainingState, group: Group, source: int, *, behind: bool) -> None:
    """Give the state of one worker to those that are behind; all of the group must call it."""
    mine = group.rank == source
    tree, tensors = split(training.content()) if mine else (None, [])
    said = _give_bytes(_packed((tree, [_kind(tensor) for tensor in tensors])), group, source)
    if not mine:
        tree, kinds = _unpacked(said)
        tensors = [torch.empty(shape, dtype=dtype, device=_wire(group)) for shape, dtype in kinds]
    for chunk in _chunks(tensors):
        _give(chunk, group, source)
    if behind and not mine:
        training.load(dict(joined(tree, tensors)))


def split(value: Any) -> tuple[Any, list[torch.Tensor]]:
    """A tree without tensors, and the tensors."""
    tensors: list[torch.Tensor] = []

    def walk(node: Any) -> Any:
        if isinstance(node, torch.Tensor):
            tensors.append(node.detach())
            return (_MARK, len(tensors) - 1)
        if isinstance(node, dict):
            return {name: walk(inner) for name, inner in node.items()}
        if type(node) in (list, tuple):
            return type(node)(walk(inner) for inner in node)
        return node

    return walk(value), tensors


def joined(tree: Any, tensors: list[torch.Tensor]) -> Any:
    """The tree with its tensors back in place."""
    if type(tree) is tuple and len(tree) == 2 and tree[0] == _MARK:  # noqa: PLR2004 - a pair
        return tensors[tree[1]]
    if isinstance(tree, dict):
        return {name: joined(inner, tensors) for name, inner in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(joined(inner, tensors) for inner in tree)
    return tree


def _compare(theirs: dict[str, Any], mine: dict[str, Any]) -> None:
    """Raise Misuse before anything is changed."""
    if theirs.keys() != mine.keys():
        some = sorted(theirs.keys() ^ mine.keys())[:3]
        raise Misuse(f"it holds another model: {', '.join(some)} in one of the two only")
    for name, tensor in mine.items():
        if isinstance(tensor, torch.Tensor) and theirs[name].shape != tensor.shape:
            was, now = list(theirs[name].shape), list(tensor.shape)
            raise Misuse(f"it holds another model: {name} was {was} and is {now}")


def _kind(tensor: torch.Tensor) -> tuple[tuple[int, ...], torch.dtype]:
    return tuple(tensor.shape), tensor.dtype


def _host_like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)


def _packed(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def _unpacked(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), weights_only=True)


def _wire(group: Group) -> torch.device:
    """Where tensors must lie to travel."""
    return group.device if group.carrier is not group.gloo else torch.device("cpu")


def _give_bytes(content: bytes, group: Group, source: int) -> bytes:
    length = torch.tensor([len(content)], device=_wire(group))
    group.give(length, source)
    flat = torch.empty(int(length.item()), dtype=torch.uint8, device=_wire(group))
    if group.rank == source:
        flat.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
    group.give(flat, source)
    return flat.cpu().numpy().tobytes() if group.rank != source else content


def _chunks(tensors: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Runs of tensors that travel together; a large one travels alone."""
    chunk: list[torch.Tensor] = []
    size = 0
    for tensor in tensors:
        if chunk and size + tensor.nbytes > _CHUNK:
            yield chunk
            chunk, size = [], 0
        chunk.append(tensor)
        size += tensor.nbytes
    if chunk:
        yield chunk


def _give(chunk: list[torch.Tensor], group: Group, source: int) -> None:
    offsets, size = [], 0
    for tensor in chunk:
        offsets.append(size)
        size += -(-tensor.nbytes // _ALIGN) * _ALIGN
    flat = torch.empty(size, dtype=torch.uint8, device=_wire(group))
    places = [
        flat[offset : offset + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        for offset, tensor in zip(offsets, chunk, strict=True)
    ]
    with torch.no_grad():
        if group.rank == source:
            for place, tensor in zip(places, chunk, strict=True):
                place.copy_(tensor)
        group.give(flat, source)
        if group.rank != source:
            for place, tensor in zip(places, chunk, strict=True):
                tensor.copy_(place)
