"""How much memory a training will need at its peak, told before its first step.

Parameters, buffers, gradients and what the optimiser keeps are known exactly. What the forward pass
keeps for the backward pass is found by running it without computing: on fake tensors for a GPU, on
the meta device otherwise, at the model's first call and with the arguments of that call. Only there
is it known whether the script computes in half precision: autocast is a context that the script
enters around the call. A model that cannot be run so is counted without it, and the prediction says
that it is a lower bound. A share of a GPU that cannot hold what is certain is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call

import torch
from roost.train.pytorch.feeder import moved
from torch import nn

MIB = 1 << 20
#: What the allocator rounds up and leaves between blocks, as a part of what is asked for.
_SLACK = 0.05
#: Kernels, handles and workspaces of a CUDA process that uses matrix libraries; what Roost keeps
#: from the allocator of a share for them is the same.
_CONTEXT = 600 * MIB
#: Tensors of the size of the parameters that an optimiser keeps, unless its options say otherwise.
_KEPT = {
    "Adadelta": 2,
    "Adagrad": 1,
    "Adam": 2,
    "AdamW": 2,
    "Adamax": 2,
    "ASGD": 1,
    "Muon": 1,
    "NAdam": 2,
    "RAdam": 2,
    "RMSprop": 1,
    "Rprop": 2,
    "SGD": 0,
    "SparseAdam": 2,
}
_UNKNOWN = 2


class TooLarge(RuntimeError):
    """The share of the GPU cannot hold this training; the message says what to ask for."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Bytes at the peak of a step, by what they are for."""

    parameters: int
    buffers: int
    gradients: int
    optimizer: int
    batch: int
    #: None when it could not be found out.
    activations: int | None
    #: Flat copies of the gradients that are averaged, and of the optimiser's arithmetic.
    working: int
    overhead: int

    @property
    def certain(self) -> int:
        """What is needed in any case."""
        states = self.parameters + self.buffers + self.gradients + self.optimizer
        return states + self.batch + (self.activations or 0)

    @property
    def total(self) -> int:
        """What is expected at the peak."""
        return self.certain + self.working + self.overhead

    @property
    def mib(self) -> int:
        """What is expected, in MiB."""
        return -(-self.total // MIB)

    def words(self) -> str:
        """The parts, for people."""
        parts = {
            "parameters": self.parameters + self.buffers,
            "gradients": self.gradients,
            "optimiser": self.optimizer,
            "batch": self.batch,
            "activations": self.activations,
            "other": self.working + self.overhead,
        }
        return ", ".join(
            f"{name} {'unknown' if size is None else f'{size / MIB:.0f} MiB'}"
            for name, size in parts.items()
        )

    def check(self, limit_mib: int | None) -> None:
        """Raise TooLarge if so much memory cannot hold what is certain."""
        if limit_mib is None or self.certain <= limit_mib * MIB:
            return
        raise TooLarge(
            f"this training needs at least {self.certain / MIB:.0f} MiB of GPU memory and is "
            f"expected to reach {self.mib} MiB where its share holds {limit_mib} MiB. Ask for a "
            f"larger share, at least {self.mib} MiB, or use a smaller batch_size ({self.words()})."
        )


def limit_mib() -> int | None:
    """How much GPU memory this worker may use; None if it is not said."""
    text = os.environ.get("ROOST_GPU_MEMORY_MIB", "")
    return int(text) if text.isdigit() and int(text) > 0 else None


def states(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any, *, workers: int = 1
) -> Prediction:
    """What a step on such a batch needs without what its forward pass keeps."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = _size(trained)
    return Prediction(
        parameters=_size(model.parameters()),
        buffers=_size(model.buffers()),
        gradients=gradients,
        optimizer=optimizer_bytes(optimizer),
        batch=_size(tensor for tensor in _tensors(batch)),
        activations=None,
        working=gradients if workers > 1 else 0,
        overhead=_overhead(model, 0),
    )


def predict(
    model: nn.Module, known: Prediction, args: tuple[Any, ...], named: dict[str, Any] | None = None
) -> Prediction:
    """What a step needs: the states that are known, and what the forward pass keeps.

    The model is called with ``args`` and ``named``. The contexts that are entered now, such as
    autocast, hold for the prediction too.
    """
    activations = _activations(model, args, named or {})
    return replace(known, activations=activations, overhead=_overhead(model, activations or 0))


def _overhead(model: nn.Module, activations: int) -> int:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not any(parameter.is_cuda for parameter in trained):
        return 0
    return int(_SLACK * (_size(model.parameters()) + 2 * _size(trained) + activations)) + _CONTEXT


def seen_mib(device: torch.device) -> int | None:
    """The peak of GPU memory that this process reached; None on a CPU."""
    if device.type != "cuda":
        return None
    return (torch.cuda.max_memory_reserved(device) + _CONTEXT) // MIB


def optimizer_bytes(optimizer: torch.optim.Optimizer) -> int:
    """What it keeps between steps: as it is now, or as its kind will after the first step."""
    kept = _size(tensor for tensor in _tensors(list(optimizer.state.values())))
    return kept or sum(
        _copies(optimizer, group) * _size(p for p in group["params"] if p.requires_grad)
        for group in optimizer.param_groups
    )


def _copies(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> int:
    kinds = [kind.__name__ for kind in type(optimizer).__mro__]
    known = next((_KEPT[kind] for kind in kinds if kind in _KEPT), _UNKNOWN)
    more = ("momentum",) if kinds[0] in ("SGD", "RMSprop") else ()
    return known + sum(bool(group.get(option)) for option in (*more, "amsgrad", "centered"))


def _activations(model: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> int | None:
    try:
        return _kept_for_backward(model, args, named)
    except Exception:  # noqa: BLE001 - whatever a model does that only works on real numbers
        return None
    finally:
        # Autocast keeps the half precision copies of parameters until its context is left: those
        # of the fake parameters must not outlive them.
        torch.clear_autocast_cache()


def _kept_for_backward(model: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> int:
    fake, mode = _faker(model)
    state: dict[str, torch.Tensor] = {}
    for name, parameter in model.named_parameters():
        state[name] = fake(parameter.detach()).requires_grad_(parameter.requires_grad)
    for name, buffer in model.named_buffers():
        state[name] = fake(buffer.detach())
    held = {tensor.untyped_storage()._cdata for tensor in state.values()}  # noqa: SLF001
    kept: dict[int, Any] = {}
    with mode:

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage._cdata not in held:  # noqa: SLF001 - tells storages apart
                kept[storage._cdata] = storage  # noqa: SLF001 - as above
            return tensor

        with saved_tensors_hooks(keep, lambda tensor: tensor), torch.enable_grad():
            out = functional_call(model, state, moved(args, fake), moved(named, fake))
        # The output, and its gradient, are there when the backward pass begins.
        total = sum(storage.nbytes() for storage in kept.values())
        total += sum(2 * tensor.nbytes for tensor in _tensors(out))
        del out
    return int(total)


def _faker(
    model: nn.Module,
) -> tuple[Callable[[torch.Tensor], torch.Tensor], AbstractContextManager[Any]]:
    if not any(parameter.is_cuda for parameter in model.parameters()):
        return (lambda tensor: tensor.to("meta")), nullcontext()
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415 - a second

    mode = FakeTensorMode()
    return mode.from_tensor, mode


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _tensors(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _tensors(inner)


def _size(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
