"""Two whole steps of a training without computing them: forward, backward, optimiser.

Two, because the optimiser makes its state in the first, and the peak is in the second. The model
and the optimiser are left as they are: what is run has fake tensors in place of theirs.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

import torch
from roost.train.pytorch.replay.kernels import kernels_of_a_gpu
from roost.train.pytorch.replay.losses import stand_in
from roost.train.pytorch.replay.recorder import Books, Recorder, fake_on_gpu, watched_autocast
from torch import nn

__all__ = ["Call", "Replayed", "predict", "replay"]

_STEPS = 2
MIB = 1 << 20
#: A CUDA process with its matrix and network libraries, beside what PyTorch's allocator holds.
_CONTEXT = 760 * MIB
#: Later steps find memory less well ordered than the first two, and reserve a little more.
_MORE = 1.04

#: Computes a loss with a model and a batch.
Loss = Callable[[Any, Any], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Call:
    """How the model is called: by its arguments, or by a loss that calls it with a batch."""

    args: tuple[Any, ...] = ()
    named: dict[str, Any] | None = None
    #: All of the batch, of which the loss may need more than the model gets.
    batch: Any = None
    loss: Loss | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """Bytes at the peak of two steps."""

    allocated: int
    reserved: int
    #: What is there when the second forward pass ends: no guess about the loss is in it.
    kept: int
    #: By the phase in which it came to be, when the most was allocated.
    at_peak: dict[str, int]

    @property
    def held(self) -> int:
        """What a share of a GPU must hold: all that is reserved, the CUDA context, some more."""
        return int(_MORE * (self.reserved + _CONTEXT))

    @property
    def mib(self) -> int:
        """The same in MiB."""
        return -(-self.held // MIB)


def predict(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any, loss: Loss) -> Replayed:
    """Foretell the GPU memory of a training with a loop of its own; needs no GPU.

    ``loss(model, batch)`` is what the loop computes before its backward pass, autocast included.
    Raises what the model raises where it needs real numbers, such as those of ``.item()``.
    """
    return replay(model, optimizer, Call(batch=batch, loss=loss))


def replay(model: nn.Module, optimizer: torch.optim.Optimizer, call: Call) -> Replayed:
    """Replay two steps as a GPU would take them, in the autocast that is entered now."""
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    books = Books()
    recorder = Recorder(books, fake)
    with ExitStack() as entered:
        entered.enter_context(_half_precision_anywhere())
        entered.enter_context(_autocast_of(model))
        entered.enter_context(watched_autocast())
        entered.enter_context(torch.autograd.set_multithreading_enabled(False))
        entered.enter_context(torch.enable_grad())
        entered.enter_context(fake)
        entered.enter_context(recorder)
        faked = Fakes(recorder, fake)
        entered.enter_context(_swapped(model, faked))
        steps = _Steps(model, optimizer, call, recorder, faked)
        entered.enter_context(kernels_of_a_gpu())
        try:
            kept = [steps.take() for _ in range(_STEPS)][-1]
        finally:
            # Autocast keeps the half precision copies of parameters until its context is left:
            # those of the fake parameters must not outlive them.
            torch.clear_autocast_cache()
    return Replayed(
        books.allocator.peak_allocated, books.allocator.peak_reserved, kept, dict(books.at_peak)
    )


class Fakes:
    """Fake tensors in place of real ones: one for each."""

    def __init__(self, recorder: Recorder, fake: FakeTensorMode) -> None:
        self._recorder, self._fake = recorder, fake
        self._made: dict[int, torch.Tensor] = {}

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """The fake of this tensor."""
        if id(tensor) not in self._made:
            self._made[id(tensor)] = fake_on_gpu(tensor, self._fake)
            self._recorder.count([self._made[id(tensor)]])
        return self._made[id(tensor)]


@contextmanager
def _swapped(model: nn.Module, faked: Fakes) -> Iterator[None]:
    """The model has fakes for parameters and buffers; also in its backward pass."""
    modules = list(model.modules())
    held: list[dict[str, Any]] = [one._parameters for one in modules]  # noqa: SLF001
    held += [one._buffers for one in modules]  # noqa: SLF001
    before = [dict(one) for one in held]
    flat = [(one, one._flat_weights) for one in modules if isinstance(one, nn.RNNBase)]  # noqa: SLF001
    try:
        for tensors in held:
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = faked(tensor)
        for layer, weights in flat:
            layer._flat_weights = [faked(one) for one in weights if one is not None]  # noqa: SLF001
        yield
    finally:
        for tensors, originals in zip(held, before, strict=True):
            tensors.update(originals)
        for layer, weights in flat:
            layer._flat_weights = weights  # noqa: SLF001


class _Called(nn.Module):
    """A loss as a module, so that all that it calls gets the fake parameters."""

    def __init__(self, model: nn.Module, loss: Loss | None) -> None:
        super().__init__()
        self.model, self._loss = model, loss

    def forward(self, *args: Any, **named: Any) -> Any:
        """Compute the loss, or the model's output."""
        return self._loss(self.model, *args) if self._loss else self.model(*args, **named)


class _Steps:
    """A training on fake tensors."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        call: Call,
        recorder: Recorder,
        faked: Fakes,
    ) -> None:
        self._books = recorder.books
        self._called = _Called(getattr(model, "_orig_mod", model), call.loss)
        # The nodes that gather gradients are made here, where autocast is not under way.
        self._gatherers = [
            tensor.view_as(tensor).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
            for tensor in model.parameters()
            if tensor.requires_grad
        ]
        self._optimizer = _with_fakes(optimizer, faked)
        self._books.phase = "batch"
        given = (call.args, call.named or {}, call.batch)
        self._args, self._named, self._batch = tree_map_only(torch.Tensor, faked, given)
        if call.loss is not None:
            self._args = (self._batch,)
        self._has_loss = call.loss is not None

    def take(self) -> int:
        """Take a step; the bytes that were there when its forward pass ended."""
        books = self._books
        books.phase = "forward"
        made = self._called(*self._args, **self._named)
        kept = books.allocator.allocated
        books.phase = "loss"
        loss = made if self._has_loss else stand_in(made, _tensors((self._args, self._batch)))
        del made
        books.phase = "backward"
        torch.autograd.backward(loss)
        books.phase = "optimizer"
        del loss
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return kept


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _with_fakes(
    optimizer: torch.optim.Optimizer, faked: Callable[[torch.Tensor], torch.Tensor]
) -> torch.optim.Optimizer:
    """The optimiser with fakes in place of its tensors, on the way that it takes on a GPU."""
    twin = copy.copy(optimizer)
    twin.param_groups = [
        {**_foreach(group), "params": [faked(one) for one in group["params"]]}
        for group in optimizer.param_groups
    ]
    twin.state = defaultdict(dict)
    for parameter, state in optimizer.state.items():
        twin.state[faked(parameter)] = {
            name: _state_of(value, faked) for name, value in state.items()
        }
    return twin


def _state_of(value: Any, faked: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return faked(value) if value.dim() else value.to("cpu", copy=True)


def _foreach(group: dict[str, Any]) -> dict[str, Any]:
    """On a GPU many tensors are taken at once unless the script says otherwise."""
    left_open = "foreach" in group and group["foreach"] is None and not group.get("fused")
    return {**group, "foreach": True} if left_open else group


@contextmanager
def _autocast_of(model: nn.Module) -> Iterator[None]:
    """The autocast of the model's device, as that of a GPU."""
    here = next((one.device.type for one in model.parameters()), "cpu")
    if here == "cuda" or torch.is_autocast_enabled("cuda"):
        yield
        return
    with ExitStack() as entered:
        if here == "cpu" and torch.is_autocast_enabled(here):
            kind = torch.get_autocast_dtype(here)
            entered.callback(torch.set_autocast_dtype, "cuda", torch.get_autocast_dtype("cuda"))
            entered.callback(torch.set_autocast_enabled, "cuda", False)  # noqa: FBT003
            torch.set_autocast_dtype("cuda", kind)
            torch.set_autocast_enabled("cuda", True)  # noqa: FBT003
        yield


@contextmanager
def _half_precision_anywhere() -> Iterator[None]:
    """Let a loss enter the autocast of a GPU where there is none: PyTorch would leave it out."""
    if torch.cuda.is_available():
        yield
        return
    module, name = torch.cuda.amp.common, "amp_definitely_not_available"
    before, supported = getattr(module, name), torch.cuda.is_bf16_supported
    setattr(module, name, lambda: False)
    torch.cuda.is_bf16_supported = lambda *_, **__: True
    try:
        yield
    finally:
        setattr(module, name, before)
        torch.cuda.is_bf16_supported = supported
