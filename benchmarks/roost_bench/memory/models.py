"""Networks of every common kind, in a few lines each, with weights that nobody has trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import torch
from torch import Tensor, nn


def _conv(into: int, out: int, size: int = 3, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(into, out, size, stride, size // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(out)]


class Residual(nn.Module):
    """What a block adds to its input."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut, self.relu = body, shortcut, nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Add and bend."""
        bent: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return bent


def _residual(into: int, width: int, stride: int, widening: int) -> Residual:
    out = width * widening
    if widening == 1:
        layers = [*_conv(into, width, 3, stride), nn.ReLU(inplace=True), *_conv(width, width)]
    else:
        layers = [
            *(*_conv(into, width, 1), nn.ReLU(inplace=True)),
            *(*_conv(width, width, 3, stride), nn.ReLU(inplace=True)),
            *_conv(width, out, 1),
        ]
    same = stride == 1 and into == out
    shortcut = nn.Identity() if same else nn.Sequential(*_conv(into, out, 1, stride))
    return Residual(nn.Sequential(*layers), shortcut)


def resnet(depths: Sequence[int], widening: int) -> nn.Module:
    """ResNet: (2, 2, 2, 2) and 1 is the 18, (3, 4, 6, 3) and 4 the 50."""
    layers: list[nn.Module] = [*_conv(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    into = 64
    for stage, depth in enumerate(depths):
        for number in range(depth):
            width = 64 << stage
            layers.append(_residual(into, width, 2 if stage and not number else 1, widening))
            into = width * widening
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, 1000))


def vgg(widths: Sequence[int]) -> nn.Module:
    """VGG: its widths, with 0 where it pools."""
    layers: list[nn.Module] = []
    into = 3
    for width in widths:
        if not width:
            layers.append(nn.MaxPool2d(2))
            continue
        layers += [nn.Conv2d(into, width, 3, padding=1), nn.ReLU(inplace=True)]
        into = width
    layers += [nn.Flatten(), nn.Linear(into * 49, 4096), nn.ReLU(inplace=True), nn.Dropout()]
    layers += [nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 1000)]
    return nn.Sequential(*layers)


class Inverted(nn.Module):
    """A block of MobileNetV2."""

    def __init__(self, into: int, out: int, stride: int, wider: int) -> None:
        super().__init__()
        hidden = into * wider
        self.adds = stride == 1 and into == out
        self.body = nn.Sequential(
            *(*_conv(into, hidden, 1), nn.ReLU6(inplace=True)),
            *(*_conv(hidden, hidden, 3, stride, hidden), nn.ReLU6(inplace=True)),
            *_conv(hidden, out, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Widen, look around, narrow."""
        made: Tensor = self.body(x)
        return x + made if self.adds else made


def mobilenet() -> nn.Module:
    """Like MobileNetV2."""
    plan = ((6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2))
    layers: list[nn.Module] = [*_conv(3, 32, 3, 2), nn.ReLU6(inplace=True), Inverted(32, 16, 1, 1)]
    into = 16
    for wider, out, depth, stride in plan:
        for number in range(depth):
            layers.append(Inverted(into, out, 1 if number else stride, wider))
            into = out
    layers += [*_conv(into, 1280, 1), nn.ReLU6(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(1280, 1000))


class UNet(nn.Module):
    """Down, up, and what was seen on the way."""

    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        sizes = [width << level for level in range(levels)]
        self.down = nn.ModuleList(
            self._twice(into, out) for into, out in zip([3, *sizes], sizes, strict=False)
        )
        self.grow = nn.ModuleList(
            nn.ConvTranspose2d(2 * out, out, 2, 2) for out in reversed(sizes[:-1])
        )
        self.up = nn.ModuleList(self._twice(2 * out, out) for out in reversed(sizes[:-1]))
        self.last = nn.Conv2d(width, 21, 1)

    @staticmethod
    def _twice(into: int, out: int) -> nn.Module:
        first = [*_conv(into, out), nn.ReLU(inplace=True)]
        return nn.Sequential(*first, *_conv(out, out), nn.ReLU(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        """A class for each pixel."""
        seen = []
        for number, layer in enumerate(self.down):
            x = layer(functional.max_pool2d(x, 2) if number else x)
            seen.append(x)
        seen.pop()
        for grow, layer in zip(self.grow, self.up, strict=True):
            x = layer(torch.cat([seen.pop(), grow(x)], 1))
        out: Tensor = self.last(x)
        return out


class Recurrent(nn.Module):
    """A language model of LSTM or GRU layers."""

    def __init__(self, words: int, width: int, layers: int, kind: str = "LSTM") -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = getattr(nn, kind)(width, width, layers, batch_first=True, dropout=0.2)
        self.out = nn.Linear(width, words)

    def forward(self, x: Tensor) -> Tensor:
        """The next word at every place."""
        out: Tensor = self.out(self.layers(self.words(x))[0])
        return out


class Attention(nn.Module):
    """Attention of several heads; ``groups`` of them share keys and values."""

    def __init__(self, width: int, heads: int, groups: int = 0, *, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.groups, self.causal = heads, groups or heads, causal
        size = width // heads
        self.into = nn.Linear(width, size * (heads + 2 * self.groups))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None, turn: Tensor | None = None) -> Tensor:
        """Look around."""
        batch, length, width = x.shape
        size = width // self.heads
        parts = self.into(x).split([width, size * self.groups, size * self.groups], -1)
        q, k, v = (part.view(batch, length, -1, size).transpose(1, 2) for part in parts)
        if turn is not None:
            q, k = _turned(q, turn), _turned(k, turn)
        if self.groups < self.heads:
            k, v = (one.repeat_interleave(self.heads // self.groups, 1) for one in (k, v))
        seen = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=self.causal and mask is None
        )
        out: Tensor = self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return out


def _turned(x: Tensor, turn: Tensor) -> Tensor:
    """Rotary positions."""
    half = x.shape[-1] // 2
    swapped = torch.cat([-x[..., half:], x[..., :half]], -1)
    return (x * turn.cos() + swapped * turn.sin()).to(x.dtype)


class Block(nn.Module):
    """A transformer's layer, normed before."""

    def __init__(
        self, width: int, attention: nn.Module, feed: nn.Module, drop: float = 0.1
    ) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention, self.feed, self.drop = attention, feed, nn.Dropout(drop)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend, then think."""
        x = x + self.drop(self.attention(self.norms[0](x), mask))
        thought: Tensor = x + self.drop(self.feed(self.norms[1](x)))
        return thought


def feed(width: int) -> nn.Module:
    """The part of a layer that looks at one place."""
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class Experts(nn.Module):
    """A mixture of experts: each takes so many of the places, and no more."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.choose = nn.Linear(width, experts)
        self.into = nn.Parameter(torch.randn(experts, width, 4 * width) * 0.02)
        self.out = nn.Parameter(torch.randn(experts, 4 * width, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Each expert thinks about the places that like it most."""
        flat = x.flatten(0, 1)
        liked = self.choose(flat).softmax(-1)
        room = 2 * flat.shape[0] // liked.shape[1]
        weight, places = liked.t().topk(room)
        thought = torch.bmm(functional.gelu(torch.bmm(flat[places], self.into)), self.out)
        made = torch.zeros_like(flat).index_add(
            0, places.flatten(), (thought * weight[..., None]).flatten(0, 1).to(flat.dtype)
        )
        return made.view_as(x)


class Transformer(nn.Module):
    """GPT, BERT or a mixture of experts: ``make`` gives the layers."""

    def __init__(
        self,
        words: int,
        width: int,
        make: Callable[[], Sequence[nn.Module]],
        *,
        again: bool = False,
        masked: bool = False,
    ) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.layers, self.norm = nn.ModuleList(make()), nn.LayerNorm(width)
        self.out = nn.Linear(width, words, bias=False)
        self.out.weight = self.words.weight
        #: Whether layers are computed again in the backward pass, and whether padding is masked.
        self.again, self.masked = again, masked

    def forward(self, x: Tensor) -> Tensor:
        """A word at every place."""
        length = x.shape[1]
        mask = (x >= 0)[:, None, None, :] if self.masked else None
        made = self.words(x) + self.places(torch.arange(length, device=x.device))
        for layer in self.layers:
            if self.again:
                made = checkpoint(layer, made, mask, use_reentrant=False)
            else:
                made = layer(made, mask)
        out: Tensor = self.out(self.norm(made))
        return out


class LlamaBlock(nn.Module):
    """A layer of Llama's shape: gates, root mean squares, rotary positions."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])
        self.attention = Attention(width, heads, groups)
        hidden = width * 8 // 3 // 64 * 64
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, turn: Tensor) -> Tensor:
        """Attend, then think."""
        x = x + self.attention(self.norms[0](x), None, turn)
        y = self.norms[1](x)
        thought: Tensor = x + self.down(functional.silu(self.gate(y)) * self.up(y))
        return thought


class Llama(nn.Module):
    """A language model of Llama's shape."""

    def __init__(self, words: int, width: int, layers: int, *, again: bool = False) -> None:
        super().__init__()
        heads = width // 64
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(LlamaBlock(width, heads, heads // 4) for _ in range(layers))
        self.norm, self.out = nn.RMSNorm(width), nn.Linear(width, words, bias=False)
        self.again = again

    def forward(self, x: Tensor) -> Tensor:
        """The next word at every place."""
        made = self.words(x)
        rates = 10000 ** -(torch.arange(0, 64, 2, device=x.device).repeat(2) / 64)
        turn = torch.arange(x.shape[1], device=x.device)[:, None] * rates
        for layer in self.layers:
            if self.again:
                made = checkpoint(layer, made, turn, use_reentrant=False)
            else:
                made = layer(made, turn)
        out: Tensor = self.out(self.norm(made))
        return out


class ViT(nn.Module):
    """A transformer of patches."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, 197, width))
        self.layers = nn.ModuleList(
            Block(width, Attention(width, heads, causal=False), feed(width), 0.0)
            for _ in range(layers)
        )
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """A class for each picture."""
        made = self.patches(x).flatten(2).transpose(1, 2)
        made = torch.cat([self.first.expand(made.shape[0], -1, -1), made], 1) + self.places
        for layer in self.layers:
            made = layer(made)
        out: Tensor = self.out(self.norm(made[:, 0]))
        return out


class Mixer(nn.Module):
    """Linear layers over the places, then over the features."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.places = nn.ModuleList(feed(196) for _ in range(layers))
        self.features = nn.ModuleList(feed(width) for _ in range(layers))
        self.out = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """A class for each picture."""
        made = self.patches(x).flatten(2).transpose(1, 2)
        for number, (places, features) in enumerate(zip(self.places, self.features, strict=True)):
            turned = self.norms[2 * number](made).transpose(1, 2)
            made = made + places(turned).transpose(1, 2)
            made = made + features(self.norms[2 * number + 1](made))
        out: Tensor = self.out(made.mean(1))
        return out


def sound(width: int) -> nn.Module:
    """Convolutions over time."""
    layers: list[nn.Module] = []
    into = 1
    for level in range(6):
        out = width << min(level, 3)
        layers += [nn.Conv1d(into, out, 9, 2, 4), nn.BatchNorm1d(out), nn.LeakyReLU(0.1)]
        into = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(into, 35))


def wide(width: int, layers: int) -> nn.Module:
    """Nothing but wide linear layers."""
    made: list[nn.Module] = []
    for _ in range(layers):
        made += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*made, nn.Linear(width, 1000))
