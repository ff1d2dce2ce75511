"""Sees every storage that operators make, and when the last tensor on it is gone.

On fake tensors nothing is computed and a GPU is not needed: they say that they are on one, so that
autocast treats them as it does there, while the autograd engine, which would look for a stream of
the device, is told that they are on a CPU. On real tensors the same bookkeeping serves as a check.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

import torch
from roost.train.pytorch.replay.allocator import Block, CachingAllocator
from roost.train.pytorch.replay.kernels import MATRIX, scratch, workspace

__all__ = ["Books", "Recorder", "fake_on_gpu", "watched_autocast"]

GPU = torch.device("cuda", 0)
_HOST = torch.device("cpu")
_AWAITS = "_roost_awaits_history"
_DEVICE_OF = torch.ops.prim.device.default


@dataclass(slots=True)
class Books:
    """What is held, by the phase in which it came to be."""

    allocator: CachingAllocator = field(default_factory=CachingAllocator)
    phase: str = "states"
    held: dict[str, int] = field(default_factory=dict)
    #: ``held`` at the moment when the most was allocated.
    at_peak: dict[str, int] = field(default_factory=dict)
    _peak: int = 0

    def born(self, size: int) -> tuple[Block, str]:
        """Somebody holds so many bytes from now on."""
        block = self.allocator.take(size)
        self.held[self.phase] = self.held.get(self.phase, 0) + block.size
        if self.allocator.allocated > self._peak:
            self._peak = self.allocator.allocated
            self.at_peak = dict(self.held)
        return block, self.phase

    def died(self, block: Block, phase: str) -> None:
        """Nobody holds them any more."""
        self.held[phase] -= block.size
        self.allocator.give_back(block)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the books of all storages that come to be while it is entered.

    ``gpu`` adds what a GPU's operators take beside their results.
    """

    def __init__(self, books: Books, fake: FakeTensorMode | None, *, gpu: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.books = books
        self._fake, self._gpu = fake, gpu
        self._known: set[int] = set()
        self._alive: dict[int, weakref.ref[Any]] = {}
        #: Real tensors that the model holds beside its parameters and buffers, and their fakes.
        self._adopted: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        #: Matrix libraries keep a workspace for each thread: of the script, of the backward pass.
        self._workspaces: set[str] = set()

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the operator, and write down what it made."""
        named = kwargs or {}
        if self._fake is not None:
            if operator is _DEVICE_OF:
                return _device_for_cpp(args[0])
            args, named = self._translated(args), self._translated(named)
            if named.get("device") == _HOST:
                named["device"] = GPU
        made = operator(*args, **named)
        if self._fake is not None and _in_autocast():
            _await_history((args, named), made)
        self.count(tree_leaves(made))
        if self._gpu:
            self._beside(operator, args, made)
        return made

    def count(self, tensors: Iterable[Any]) -> None:
        """Write down the storages of these tensors that are not known yet."""
        for tensor in tensors:
            if not isinstance(tensor, torch.Tensor):
                continue
            if self._fake is not None and tensor.device.type != "cuda":
                continue
            storage = tensor.untyped_storage()
            key = storage._cdata  # noqa: SLF001 - what tells storages apart
            if key not in self._known:
                self._known.add(key)
                self._follow(storage, key)

    def _follow(self, storage: torch.UntypedStorage, key: int) -> None:
        size = storage.nbytes()
        entry = self.books.born(size) if size else None

        def gone(_: Any) -> None:
            self._known.discard(key)
            self._alive.pop(key, None)
            if entry is not None:
                self.books.died(*entry)

        self._alive[key] = weakref.ref(storage, gone)

    def _beside(self, operator: Any, args: tuple[Any, ...], made: Any) -> None:
        if operator in MATRIX:
            thread = "backward" if self.books.phase == "backward" else "script"
            if thread not in self._workspaces:
                self._workspaces.add(thread)
                self.books.born(workspace())
        for size in scratch(operator, args, made):
            self.books.died(*self.books.born(size))

    def _translated(self, value: Any) -> Any:
        return tree_map_only(torch.Tensor, self._as_fake, value)

    def _as_fake(self, tensor: torch.Tensor) -> torch.Tensor:
        # A number, such as an optimiser's count of steps, stays one whose value is known.
        if isinstance(tensor, FakeTensor) or self._fake is None or not tensor.dim():
            return tensor
        if id(tensor) not in self._adopted:
            self._adopted[id(tensor)] = (tensor, fake_on_gpu(tensor, self._fake))
            self.count([self._adopted[id(tensor)][1]])
        return self._adopted[id(tensor)][1]


class _Autocast:
    """Whether the script computes in mixed precision; inside of an operator PyTorch says it not."""

    on: ClassVar[bool] = False


@contextmanager
def watched_autocast() -> Iterator[None]:
    """Know at any time whether autocast is entered."""
    kind: Any = torch.amp.autocast_mode.autocast
    enter, leave = kind.__enter__, kind.__exit__

    def entered(self: Any) -> Any:
        made = enter(self)
        _Autocast.on = torch.is_autocast_enabled("cuda")
        return made

    def left(self: Any, *failure: Any) -> Any:
        made = leave(self, *failure)
        _Autocast.on = torch.is_autocast_enabled("cuda")
        return made

    _Autocast.on = torch.is_autocast_enabled("cuda")
    kind.__enter__, kind.__exit__ = entered, left
    try:
        yield
    finally:
        kind.__enter__, kind.__exit__ = enter, leave


def _in_autocast() -> bool:
    """Whether an operator that autocast wraps is under way: it switches autocast off meanwhile."""
    return _Autocast.on and not torch.is_autocast_enabled("cuda")


def _device_for_cpp(tensor: Any) -> torch.device:
    """What C++ hears when it asks a fake tensor where it is.

    Autocast must hear that it is on a GPU, else it converts nothing. The node that autograd makes
    for a new tensor must not, else the engine looks for a stream of the device. Both ask while an
    operator that autocast wraps is under way; the second of tensors that have no history yet.
    """
    if not _in_autocast() or (tensor.grad_fn is None and hasattr(tensor, _AWAITS)):
        return _HOST
    return GPU


def _await_history(given: Any, made: Any) -> None:
    """Mark new tensors of which autograd is about to make a node."""
    if not torch.is_grad_enabled():
        return
    if any(isinstance(one, torch.Tensor) and one.requires_grad for one in tree_leaves(given)):
        for one in tree_leaves(made):
            if isinstance(one, torch.Tensor):
                setattr(one, _AWAITS, True)


def fake_on_gpu(tensor: torch.Tensor, fake: FakeTensorMode) -> torch.Tensor:
    """A fake tensor that looks like this one and says that it is on a GPU."""
    with fake, torch.no_grad():
        copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=GPU)
    return copy.requires_grad_(tensor.requires_grad)
