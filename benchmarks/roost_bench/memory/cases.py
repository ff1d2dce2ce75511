"""What is trained: a network, a batch, a precision, an optimiser.

``CASES`` are those that the model of a GPU's operators was fitted on, ``OTHERS`` those that it had
never seen when it was.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from torch.nn import functional

import torch
from roost_bench.memory import models
from torch import Tensor, nn

__all__ = ["CASES", "OTHERS", "Case", "find"]

_VGG16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
_VGG11 = (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0)
_PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}
_WORDS = 32000


@dataclass(frozen=True, slots=True)
class Case:
    """A training; ``precision`` is fp32, bf16 or fp16, the last with a scaler of gradients."""

    name: str
    model: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]
    precision: str = "fp32"
    optimizer: str = "AdamW"

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimiser of this training."""
        if self.optimizer == "AdamW":
            return torch.optim.AdamW(model.parameters(), 1e-4)
        if self.optimizer == "RMSprop":
            return torch.optim.RMSprop(model.parameters(), 1e-4, momentum=0.9)
        return torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)

    def autocast(self) -> Any:
        """The context in which it computes."""
        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast("cuda", dtype=_PRECISIONS[self.precision])

    def loss(self, model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
        """The loss, in the precision of this training."""
        with self.autocast():
            out = model(batch[0])
            if out.dim() == 3:  # noqa: PLR2004 - samples, places, words
                return functional.cross_entropy(out.flatten(0, 1), batch[1].flatten())
            return functional.cross_entropy(out, batch[1])


def find(name: str) -> Case:
    """The case of this name."""
    return next(case for case in (*CASES, *OTHERS) if case.name == name)


def _pictures(many: int, size: int = 224) -> Callable[[], tuple[Tensor, Tensor]]:
    return lambda: (torch.randn(many, 3, size, size), torch.randint(1000, (many,)))


def _scenes(many: int, size: int) -> Callable[[], tuple[Tensor, Tensor]]:
    return lambda: (torch.randn(many, 3, size, size), torch.randint(21, (many, size, size)))


def _texts(many: int, length: int, words: int = _WORDS) -> Callable[[], tuple[Tensor, Tensor]]:
    return lambda: (torch.randint(words, (many, length)), torch.randint(words, (many, length)))


def _language(
    layers: int, width: int, words: int = _WORDS, *, causal: bool = True, **more: bool
) -> Callable[[], nn.Module]:
    def layer() -> nn.Module:
        attention = models.Attention(width, width // 64, causal=causal)
        return models.Block(width, attention, models.feed(width))

    return lambda: models.Transformer(
        words, width, lambda: [layer() for _ in range(layers)], **more
    )


def _mixture(layers: int, width: int, experts: int) -> nn.Module:
    def layer(number: int) -> nn.Module:
        inner = models.Experts(width, experts) if number % 2 else models.feed(width)
        return models.Block(width, models.Attention(width, width // 64), inner)

    return models.Transformer(_WORDS, width, lambda: [layer(one) for one in range(layers)])


_GPT = _language(12, 768, 50257)
_GPT_AGAIN = _language(12, 768, 50257, again=True)
_BERT = _language(12, 768, 30522, causal=False)
_BERT_MASKED = _language(12, 768, 30522, causal=False, masked=True)

CASES = (
    Case("resnet18-64", lambda: models.resnet((2, 2, 2, 2), 1), _pictures(64), "fp32", "SGD"),
    Case("resnet50-32", lambda: models.resnet((3, 4, 6, 3), 4), _pictures(32), "fp32", "SGD"),
    Case("resnet50-64-bf16", lambda: models.resnet((3, 4, 6, 3), 4), _pictures(64), "bf16", "SGD"),
    Case("resnet50-64-fp16", lambda: models.resnet((3, 4, 6, 3), 4), _pictures(64), "fp16"),
    Case("vgg16-32", lambda: models.vgg(_VGG16), _pictures(32), "fp32", "SGD"),
    Case("vgg16-32-bf16", lambda: models.vgg(_VGG16), _pictures(32), "bf16"),
    Case("mobilenet-64", models.mobilenet, _pictures(64), "fp32", "RMSprop"),
    Case("mobilenet-128-bf16", models.mobilenet, _pictures(128), "bf16", "SGD"),
    Case("unet-8", lambda: models.UNet(32, 5), _scenes(8, 256)),
    Case("unet-8-bf16", lambda: models.UNet(64, 4), _scenes(8, 256), "bf16"),
    Case("lstm-32x256", lambda: models.Recurrent(10000, 1024, 2), _texts(32, 256, 10000)),
    Case("lstm-64x128-bf16", lambda: models.Recurrent(_WORDS, 512, 3), _texts(64, 128), "bf16"),
    Case("vit-32", lambda: models.ViT(768, 12, 12), _pictures(32)),
    Case("vit-64-bf16", lambda: models.ViT(768, 12, 12), _pictures(64), "bf16"),
    Case("bert-8x512", _BERT, _texts(8, 512, 30522)),
    Case("bert-8x512-bf16", _BERT, _texts(8, 512, 30522), "bf16"),
    Case("bert-masked-8x512-fp16", _BERT_MASKED, _texts(8, 512, 30522), "fp16"),
    Case("gpt-4x1024", _GPT, _texts(4, 1024)),
    Case("gpt-8x1024-bf16", _GPT, _texts(8, 1024), "bf16"),
    Case("gpt-again-8x1024-bf16", _GPT_AGAIN, _texts(8, 1024), "bf16"),
    Case("llama-4x1024-bf16", lambda: models.Llama(_WORDS, 1024, 12), _texts(4, 1024), "bf16"),
    Case(
        "llama-again-4x1024-bf16",
        lambda: models.Llama(_WORDS, 1024, 12, again=True),
        _texts(4, 1024),
        "bf16",
        "SGD",
    ),
    Case("experts-8x512-bf16", lambda: _mixture(8, 512, 8), _texts(8, 512), "bf16"),
    Case(
        "wide-256",
        lambda: models.wide(4096, 8),
        lambda: (torch.randn(256, 4096), torch.randint(1000, (256,))),
    ),
)
OTHERS = (
    Case("resnet34-48-bf16", lambda: models.resnet((3, 4, 6, 3), 1), _pictures(48), "bf16"),
    Case("vgg11-48", lambda: models.vgg(_VGG11), _pictures(48), "fp32", "RMSprop"),
    Case("unet-4-fp16", lambda: models.UNet(48, 5), _scenes(4, 320), "fp16", "SGD"),
    Case("gpt-medium-2x1024-bf16", _language(24, 1024), _texts(2, 1024), "bf16"),
    Case("vit-small-64", lambda: models.ViT(384, 12, 6), _pictures(64), "fp32", "SGD"),
    Case(
        "bert-masked-again-16x256",
        _language(8, 512, causal=False, masked=True, again=True),
        _texts(16, 256),
    ),
    Case(
        "sound-64",
        lambda: models.sound(64),
        lambda: (torch.randn(64, 1, 16000), torch.randint(35, (64,))),
    ),
    Case("mixer-64-bf16", lambda: models.Mixer(512, 8), _pictures(64), "bf16", "SGD"),
)
