"""What roost.train raises with PyTorch is what failures are recognised by."""

from __future__ import annotations

from tests.unit.jobs.failures.samples import Sample, raised
from tests.unit.jobs.failures.test_classify import judged

from roost import train
from roost.train.pytorch import memory


def test_what_roost_train_raises_is_what_is_looked_for() -> None:
    for raises, kind in ((memory.TooLarge, "share-too-small"), (train.Misuse, "library-misuse")):
        told = f"{raises.__module__}.{raises.__qualname__}: why"
        assert judged(Sample(kind, raised(told))).kind == kind
