"""How evenly blocks of known networks are spread over parameter servers, by two rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from roost_bench.optimus.blocks import Assignment, balanced, by_threshold


@dataclass(frozen=True, slots=True)
class BlockSpread:
    """One network on so many servers by one rule: fullest server against the mean."""

    network: str
    servers: int
    rule: str
    size: float
    requests: float
    total_requests: float


def spread_of(servers: int, draws: int) -> list[BlockSpread]:
    """All networks on so many servers, by both rules; what is random is averaged over draws."""
    found = []
    for name, sizes in NETWORKS.items():
        found.append(_mean(name, servers, "balanced", [balanced(sizes, servers)]))
        at_random = [
            by_threshold(sizes, servers, np.random.Generator(np.random.PCG64(draw)))
            for draw in range(draws)
        ]
        found.append(_mean(name, servers, "threshold", at_random))
    return found


def _mean(name: str, servers: int, rule: str, assignments: Sequence[Assignment]) -> BlockSpread:
    seen = [one.imbalance() for one in assignments]
    size, requests, total = (mean(column) for column in zip(*seen, strict=True))
    return BlockSpread(name, servers, rule, size, requests, total)


def resnet50() -> list[int]:
    """Parameters of each block of ResNet-50 (He et al., 2016), norms and classifier included."""
    blocks = [*_convolution(3, 64, 7)]
    width = 64
    for planes, depth in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for at in range(depth):
            blocks += _convolution(width, planes, 1)
            blocks += _convolution(planes, planes, 3)
            blocks += _convolution(planes, 4 * planes, 1)
            if not at:
                blocks += _convolution(width, 4 * planes, 1)
            width = 4 * planes
    return [*blocks, width * 1000, 1000]


def vgg16() -> list[int]:
    """Parameters of each block of VGG-16 (Simonyan and Zisserman, 2015): weights and biases."""
    blocks: list[int] = []
    width = 3
    for planes, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            blocks += [width * planes * 9, planes]
            width = planes
    for inputs, outputs in ((512 * 49, 4096), (4096, 4096), (4096, 1000)):
        blocks += [inputs * outputs, outputs]
    return blocks


def lstm(words: int = 10_000, width: int = 650, layers: int = 2) -> list[int]:
    """Parameters of each block of a language model like that of Zaremba et al. (2014)."""
    layer = [4 * width * width, 4 * width * width, 4 * width]
    return [words * width, *(layer * layers), width * words, words]


def _convolution(inputs: int, outputs: int, width: int) -> list[int]:
    """A convolution without a bias, and the scale and shift of the norm after it."""
    return [inputs * outputs * width * width, outputs, outputs]


def _made(*makers: Callable[[], list[int]]) -> dict[str, list[int]]:
    return {maker.__name__: maker() for maker in makers}


NETWORKS = _made(resnet50, vgg16, lstm)
