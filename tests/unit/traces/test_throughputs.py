"""Gavel's table of throughputs."""

from __future__ import annotations

import pytest
from tests.oracles.gavel_rates import table

from roost.errors import NotFound


@pytest.mark.parametrize(
    ("kind", "job_type", "workers", "nodes", "rate"),
    [
        ("v100", "LM (batch size 5)", 1, 1, 10.0),
        ("v100", "LM (batch size 5)", 2, 1, 18.0),
        ("v100", "LM (batch size 5)", 2, 2, 6.0),
        ("v100", "LM (batch size 5)", 4, 1, 36.0),  # grows from two
        ("v100", "LM (batch size 5)", 4, 3, 12.0),
        ("k80", "A3C", 2, 2, 6.0),  # nobody measured it spread
        ("k80", "LM (batch size 5)", 2, 1, 0.0),  # it does not fit there
        ("k80", "CycleGAN", 1, 1, 0.0),
    ],
)
def test_rates_come_from_the_table(
    kind: str, job_type: str, workers: int, nodes: int, rate: float
) -> None:
    assert table().rate(kind, job_type, workers, nodes=nodes) == rate


def test_kinds_and_types_can_be_asked_for() -> None:
    assert table().kinds == ("v100", "k80")
    assert table().types("k80") == ("LM (batch size 5)", "A3C")
    with pytest.raises(NotFound, match="did you mean 'k80'"):
        table().check_kind("k8")
