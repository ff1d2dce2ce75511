"""Networks as files: read as they were written, and refused with a sentence when they are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roost.errors import InvalidSpec
from roost.policies.kit.networks import Network

INPUTS = ("a", "b")


def network() -> Network:
    hidden = np.arange(9.0).reshape(3, 3) / 10
    return Network("own", INPUTS, ("net",), hidden, np.ones(3), np.array([1.0, -1.0, 2.0]), 0.5)


def test_a_score_is_that_of_the_formula() -> None:
    row = np.array([[1.0, 2.0, 0.0]])
    inner = np.tanh(np.array([0.6 + 1.0, 0.9 + 1.0, 1.2 + 1.0]))

    assert network().score(row) == pytest.approx([inner[0] - inner[1] + 2 * inner[2] + 0.5])


def test_a_new_one_scores_everything_0() -> None:
    begun = Network.begin("own", INPUTS, (), np.ones((2, 4)))

    assert begun.score(np.array([[3.0, -7.0]])) == pytest.approx([0.0])


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    path.write_text(json.dumps(network().data()))
    found = Network.read(path, "own", INPUTS)

    assert found.data() == network().data()
    assert np.array_equal(found.with_numbers(found.numbers).numbers, network().numbers)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 2}, "of version 2"),
        ({"version": True}, "of version True"),
        ({"kind": "estimates"}, "made for inputs=estimates, not for inputs=own"),
        ({"inputs": ["b", "a"]}, "another set of inputs than a, b"),
        ({"sorts": ["net", "net"]}, "named twice"),
        ({"sorts": [1]}, "names of its sorts"),
        ({"hidden": [[1.0, 2.0, 3.0]]}, "not of 3 rows"),
        ({"hidden": [[1.0], [1.0, 2.0], [3.0]]}, "several lengths"),
        ({"biases": [1.0, float("nan"), 1.0]}, "no usual number under 'biases'"),
        ({"out": [1.0, float("inf"), 1.0]}, "no usual number under 'out'"),
        ({"out": [1.0, 1e300, 1.0]}, "no usual number under 'out'"),
        ({"out": [1.0, 2.0]}, "not of 3 numbers"),
        ({"out": ["1", 2.0, 3.0]}, "without numbers under 'out'"),
        ({"offset": None}, "without numbers under 'offset'"),
        ({"offset": [0.5]}, "one number under 'offset'"),
        ({"offset": 10**400}, "'offset'"),
    ],
)
def test_what_is_no_such_network_is_refused(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    path = tmp_path / "weights.json"
    path.write_text(json.dumps(network().data() | change))

    with pytest.raises(InvalidSpec, match=says):
        Network.read(path, "own", INPUTS)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_object_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "weights.json"
    path.write_bytes(content)

    with pytest.raises(InvalidSpec, match=r"weights\.json are"):
        Network.read(path, "own", INPUTS)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="cannot read weights"):
        Network.read(tmp_path / "none.json", "own", INPUTS)
