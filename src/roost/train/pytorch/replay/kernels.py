"""What operators do on a GPU that they do not do elsewhere, and what they take beside results.

Which kernel computes attention, dropout or a recurrent layer is decided by C++ that asks the
device. Here it is decided by hand, as PyTorch decides on a GPU of compute capability 8.0 or newer,
so that a prediction is the same on a machine without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint as checkpoints

import torch
from torch import nn

__all__ = ["MATRIX", "kernels_of_a_gpu", "scratch", "workspace"]

MIB = 1 << 20
_aten = torch.ops.aten

#: Operators of the matrix library, which keeps a workspace from its first use on.
MATRIX = frozenset(
    (
        *(_aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default),
        *(_aten._addmm_activation.default, _aten.addmv.default, _aten.mv.default),  # noqa: SLF001
    )
)
_HALF = (torch.float16, torch.bfloat16)
#: Heads that are wider have no flash kernel.
_WIDEST_HEAD = 256
_ALIGNED = 8
#: A convolution that looks at one place is a matrix product where there are more places than so.
_FEW_PLACES = 196


def workspace() -> int:
    """Bytes that the matrix library keeps for a thread, on a GPU of 2022 or newer."""
    return 32 * MIB


def scratch(operator: Any, args: Sequence[Any], made: Any) -> Iterable[int]:
    """Bytes that an operator holds while it runs, one after the other, beside its results.

    The rules were read off an H200 (PyTorch 2.11, CUDA 13), operator by operator.
    """
    rule = _SCRATCH.get(operator)
    return () if rule is None else [int(size) for size in rule(args, made) if size]


def _convolution(args: Sequence[Any], made: torch.Tensor) -> Iterable[float]:
    """Copies in the order that tensor cores like, of what comes in and what goes out."""
    entry, weight, stride, groups = args[0], args[1], args[3], args[8]
    if groups > 1 or (weight.shape[1] < _ALIGNED and max(weight.shape[2:]) <= 3):  # noqa: PLR2004
        return
    if _is_product(weight, stride) and _places(made) > _FEW_PLACES:
        return
    yield entry.nbytes + made.nbytes + weight.nbytes


def _convolution_backward(args: Sequence[Any], _: Any) -> Iterable[float]:
    """The same for what came in, then again for the weights, with sums of their parts."""
    gradient, entry, weight = args[0], args[1], args[2]
    stride, transposed, groups = args[4], args[7], args[9]
    both = gradient.nbytes + entry.nbytes
    if groups > 1:
        return
    if transposed:
        yield 1.72 * both
    elif _is_product(weight, stride) and _places(gradient) > _FEW_PLACES:
        yield 0.1 * both
    else:
        if args[10][0]:
            yield both + weight.nbytes
        yield both + max(min(15 * weight.nbytes, 9 * MIB), 1.92 * weight.nbytes)


def _is_product(weight: torch.Tensor, stride: Sequence[int]) -> bool:
    return max(weight.shape[2:]) == 1 and max(stride) == 1


def _places(pictures: torch.Tensor) -> int:
    return pictures.shape[2:].numel()


def _sum(args: Sequence[Any], _: Any) -> Iterable[float]:
    """Sums over the first dimensions are gathered in single precision by several blocks."""
    entry, over = args[0], args[1]
    if not over or list(over) != list(range(len(over))) or len(over) == entry.dim():
        return
    yield float(min(8 * entry.numel(), 132 * MIB))


def _flash_backward(args: Sequence[Any], _: Any) -> Iterable[float]:
    """The gradient of the queries is gathered in single precision."""
    batch, heads, length, width = args[1].shape
    yield float(4 * batch * heads * length * (width + 1))


def _efficient_backward(args: Sequence[Any], _: Any) -> Iterable[float]:
    """The same, in whole tiles."""
    batch, heads, length, width = args[1].shape
    yield float(4 * batch * heads * (-(-length // 128) * 128) * (width + 1))


def _embedding_backward(args: Sequence[Any], _: Any) -> Iterable[float]:
    """The gradient in order, and the words sorted."""
    yield 1.1 * float(args[0].nbytes)


_SCRATCH: dict[Any, Callable[[Sequence[Any], Any], Iterable[float]]] = {
    _aten.convolution.default: _convolution,
    _aten.convolution_backward.default: _convolution_backward,
    _aten.sum.dim_IntList: _sum,
    _aten.embedding_dense_backward.default: _embedding_backward,
    _aten._scaled_dot_product_flash_attention_backward.default: _flash_backward,  # noqa: SLF001
    _aten._scaled_dot_product_efficient_attention_backward.default: _efficient_backward,  # noqa: SLF001
}


class _Kernels(TorchFunctionMode):
    """Calls the operators of a GPU where PyTorch would look for the device first.

    A mode sees calls by whatever name a script imported them; inside of functions that it sees it
    is left, so that those that call others by their module find them changed there, too.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call what a GPU would run."""
        named = kwargs or {}
        chosen = _CHOSEN.get(function)
        return function(*args, **named) if chosen is None else chosen(*args, **named)


@contextmanager
def kernels_of_a_gpu() -> Iterator[None]:
    """Operators are those of a GPU from now on."""
    before = {name: getattr(nn.functional, name) for name in _INSIDE}
    for name, function in _INSIDE.items():
        setattr(nn.functional, name, function)
    # Layers that are computed again would ask a GPU for the state of its chance.
    chance = checkpoints.get_device_states, checkpoints.set_device_states
    checkpoints.get_device_states = lambda *_: ([], [])
    checkpoints.set_device_states = lambda *_, **__: None
    try:
        with _Kernels():
            yield
    finally:
        checkpoints.get_device_states, checkpoints.set_device_states = chance
        for name, function in before.items():
            setattr(nn.functional, name, function)


def _attention(  # noqa: PLR0913 - PyTorch's own arguments
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - as above
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002 - as above
) -> torch.Tensor:
    if torch.is_autocast_enabled("cuda"):
        kind = torch.get_autocast_dtype("cuda")
        query, key, value = query.to(kind), key.to(kind), value.to(kind)
        if attn_mask is not None and attn_mask.is_floating_point():
            attn_mask = attn_mask.to(kind)
    width = query.shape[-1]
    if attn_mask is None and query.dtype in _HALF and width <= _WIDEST_HEAD:
        return _flash(query, key, value, dropout_p, is_causal, scale)
    if not enable_gqa and query.dim() == 4 and width % 4 == 0:  # noqa: PLR2004 - batch, heads, ...
        mask = _bias(attn_mask, query, key)
        graph = any(tensor.requires_grad for tensor in (query, key, value))
        made = _aten._scaled_dot_product_efficient_attention(  # noqa: SLF001
            query, key, value, mask, graph, dropout_p, is_causal, scale=scale
        )
        seen: torch.Tensor = made[0]
        return seen
    plain: torch.Tensor = _aten._scaled_dot_product_attention_math(  # noqa: SLF001
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )[0]
    return plain


def _flash(  # noqa: PLR0913
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float,
    is_causal: bool,  # noqa: FBT001
    scale: float | None,
) -> torch.Tensor:
    width = query.shape[-1]
    missing = -width % _ALIGNED
    if missing:
        scale = width**-0.5 if scale is None else scale
        query, key, value = (nn.functional.pad(one, (0, missing)) for one in (query, key, value))
    made: torch.Tensor = _aten._scaled_dot_product_flash_attention(  # noqa: SLF001
        query, key, value, dropout_p, is_causal, return_debug_mask=False, scale=scale
    )[0]
    return made[..., :width] if missing else made


def _bias(mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor | None:
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), -1e9)
    rest = -mask.shape[-1] % _ALIGNED
    if rest:
        mask = nn.functional.pad(mask, (0, rest))[..., : mask.shape[-1]]
    return mask.expand(*query.shape[:-1], key.shape[-2])


def _dropout(
    tensor: torch.Tensor,
    p: float = 0.5,
    training: bool = True,  # noqa: FBT001, FBT002 - PyTorch's own arguments
    inplace: bool = False,  # noqa: FBT001, FBT002 - as above
) -> torch.Tensor:
    if not training or p == 0.0:
        return tensor
    made: torch.Tensor = _aten.native_dropout(tensor, p, True)[0]  # noqa: FBT003
    return tensor.copy_(made) if inplace else made


def _recurrent(  # noqa: PLR0913 - PyTorch's own arguments
    function: Any,
    gates: int,
    entry: torch.Tensor,
    hidden: Any,
    weights: Sequence[torch.Tensor],
    has_biases: bool,  # noqa: FBT001
    layers: int,
    dropout: float,
    train: bool,  # noqa: FBT001
    bidirectional: bool = False,  # noqa: FBT001, FBT002
    batch_first: bool = False,  # noqa: FBT001, FBT002
) -> Any:
    if not isinstance(weights, list | tuple):  # packed sequences come with other arguments
        more = (has_biases, layers, dropout, train, bidirectional, batch_first)
        return function(entry, hidden, weights, *more)
    first = hidden[0] if isinstance(hidden, list | tuple) else hidden
    if torch.is_autocast_enabled("cuda"):
        kind = torch.get_autocast_dtype("cuda")
        entry, first = entry.to(kind), first.to(kind)
    size = first.shape[-1] * (2 if bidirectional else 1)
    kept = entry.shape[0] * entry.shape[1] * size * layers * (gates + 2) * entry.element_size()
    kept += entry.shape[0] * entry.shape[1] * size * (layers - 1) if dropout and train else 0
    out, *states = _Recurrent.apply(  # type: ignore[no-untyped-call]
        entry, size, kept, gates == _LSTM_GATES, first, *weights
    )
    return (out, *states)


_LSTM_GATES, _GRU_GATES = 4, 3


class _Recurrent(torch.autograd.Function):
    """A recurrent layer of cuDNN: one operator, with weights in one piece and a reserve."""

    @staticmethod
    def forward(  # noqa: PLR0913
        ctx: Any,
        entry: torch.Tensor,
        size: int,
        reserve: int,
        cell: bool,  # noqa: FBT001
        first: torch.Tensor,
        *weights: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """Results, and what cuDNN keeps."""
        out = entry.new_empty((*entry.shape[:-1], size))
        states = [torch.empty_like(first) for _ in range(1 + cell)]
        total = sum(weight.numel() for weight in weights)
        same = weights[0].dtype == entry.dtype
        flat = [] if same else [entry.new_empty(total)]
        kept = entry.new_empty(reserve, dtype=torch.uint8)
        ctx.save_for_backward(entry, out, kept, *flat)
        ctx.weights, ctx.first = weights, first
        return (out, *states)

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[Any, ...]:
        """Gradients; those of the weights are parts of one tensor."""
        entry = ctx.saved_tensors[0]
        into = torch.empty_like(entry)
        weights = ctx.weights
        flat = entry.new_empty(sum(weight.numel() for weight in weights))
        parts = flat.split([weight.numel() for weight in weights])
        shaped = [
            part.view(weight.shape).to(weight.dtype)
            for part, weight in zip(parts, weights, strict=True)
        ]
        return (into, None, None, None, None, *shaped)


def _lstm(*args: Any, **named: Any) -> Any:
    return _recurrent(torch.lstm, _LSTM_GATES, *args, **named)


def _gru(*args: Any, **named: Any) -> Any:
    return _recurrent(torch.gru, _GRU_GATES, *args, **named)


_CHOSEN: dict[Any, Callable[..., Any]] = {
    torch.lstm: _lstm,
    torch.gru: _gru,
    nn.functional.scaled_dot_product_attention: _attention,
    nn.functional.dropout: _dropout,
}
_INSIDE = {"dropout": _dropout, "scaled_dot_product_attention": _attention}
