from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.core import Range
from roost.jobfile.grammar import (
    AmountRange,
    GpuRequest,
    mib,
    read_cpus,
    read_duration,
    read_gpus,
    read_size,
    read_sizes,
    read_workers,
    write_cpus,
    write_duration,
    write_gpus,
    write_size,
    write_sizes,
    write_workers,
)

GIB = 1024**3


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (90, 90.0),
        ("90", 90.0),
        ("90s", 90.0),
        ("15m", 900.0),
        ("2h", 7200.0),
        ("1d", 86400.0),
        ("1w", 604800.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        (0.25, 0.25),
        ("0s", 0.0),
    ],
)
def test_durations(written: object, seconds: float) -> None:
    assert read_duration(written) == seconds
    assert read_duration(write_duration(seconds)) == seconds


@pytest.mark.parametrize(
    "written",
    ["", "x", "1x", "-1s", -1, math.nan, math.inf, "20y", "1:30", True, [], "9999w", "٣s"],
)
def test_no_durations(written: object) -> None:
    with pytest.raises(ValueError, match="a duration such as"):
        read_duration(written)


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("24GB", 24_000_000_000),
        ("16Gi", 16 * GIB),
        ("16GiB", 16 * GIB),
        ("512MB", 512_000_000),
        ("1.5Ti", 1536 * GIB),
        ("64 GB", 64_000_000_000),
        ("24gb", 24_000_000_000),
        ("100B", 100),
    ],
)
def test_sizes(written: str, size: int) -> None:
    assert read_size(written) == size
    assert read_size(write_size(size)) == size


@pytest.mark.parametrize("written", ["24", 24, "GB", "-1GB", "0GB", "2Pi", "1e3GB", None, "24GBs"])
def test_no_sizes(written: object) -> None:
    with pytest.raises(ValueError, match="a size such as 24GB, 16Gi or 512MB"):
        read_size(written)


def test_sizes_are_written_shortly() -> None:
    assert [write_size(read_size(size)) for size in ("24GB", "16Gi", "512MB", "1TB")] == [
        *("24GB", "16Gi", "512MB", "1TB")
    ]
    assert mib(1) == 1
    assert mib(24_000_000_000) == 22889


def test_ranges_of_sizes() -> None:
    assert read_sizes("64GB..") == AmountRange(64_000_000_000, None)
    assert read_sizes("1Gi..2Gi") == AmountRange(GIB, 2 * GIB)
    assert write_sizes(read_sizes("64GB..")) == "64GB.."
    with pytest.raises(ValueError, match="or a range such as"):
        read_sizes("2GB..1GB")


@pytest.mark.parametrize(
    ("written", "workers"),
    [
        (4, Range(4, 4)),
        ("4", Range(4, 4)),
        ("1..4", Range(1, 4)),
        (" 1 .. 4 ", Range(1, 4)),
        ([1, 4], Range(1, 4)),
        ({"min": 1, "max": 4}, Range(1, 4)),
    ],
)
def test_workers(written: object, workers: Range) -> None:
    assert read_workers(written) == workers
    assert read_workers(write_workers(workers)) == workers


@pytest.mark.parametrize(
    "written",
    [
        0,
        -1,
        "0..4",
        "4..1",
        "1..",
        "..4",
        [1],
        [1, 2, 3],
        {"min": 1},
        10_001,
        True,
        1.5,
        "1.5",
        None,
    ],
)
def test_no_workers(written: object) -> None:
    with pytest.raises(ValueError, match="a number of workers such as 4"):
        read_workers(written)


@pytest.mark.parametrize(
    ("written", "cpus"),
    [
        (8, AmountRange(8000, 8000)),
        ("8", AmountRange(8000, 8000)),
        ("8..", AmountRange(8000, None)),
        (0.5, AmountRange(500, 500)),
        ("0.5", AmountRange(500, 500)),
        ("4..8", AmountRange(4000, 8000)),
    ],
)
def test_cpus(written: object, cpus: AmountRange) -> None:
    assert read_cpus(written) == cpus
    assert read_cpus(write_cpus(cpus)) == cpus


@pytest.mark.parametrize("written", [0, -1, "x", "8..4", math.nan, math.inf, 1e9, True, [], "..8"])
def test_no_cpus(written: object) -> None:
    with pytest.raises(ValueError, match="a number of CPUs such as 8"):
        read_cpus(written)


@pytest.mark.parametrize(
    ("written", "gpus"),
    [
        (2, GpuRequest(2, 2)),
        ("2", GpuRequest(2, 2)),
        (0, GpuRequest(0, 0)),
        (0.5, GpuRequest(share_milli=500)),
        ("0.5", GpuRequest(share_milli=500)),
        (2.0, GpuRequest(2, 2)),
        ("H100:2", GpuRequest(2, 2, kinds=("H100",))),
        ("H100", GpuRequest(kinds=("H100",))),
        ("A100:0.5", GpuRequest(share_milli=500, kinds=("A100",))),
        ("RTX 4090:1", GpuRequest(kinds=("RTX 4090",))),
        ("24GB..80GB:1..8", GpuRequest(1, 8, memory=AmountRange(24_000_000_000, 80_000_000_000))),
        ("80GB", GpuRequest(memory=AmountRange(80_000_000_000, 80_000_000_000))),
        ("40GB..:2", GpuRequest(2, 2, memory=AmountRange(40_000_000_000, None))),
        (
            "A100:80GB:2",
            GpuRequest(2, 2, kinds=("A100",), memory=AmountRange(80_000_000_000, 80_000_000_000)),
        ),
        (["A100:1", "H100:1"], GpuRequest(kinds=("A100", "H100"))),
        (["A100:0.5", "H100:0.5"], GpuRequest(share_milli=500, kinds=("A100", "H100"))),
        ("1..4", GpuRequest(1, 4)),
    ],
)
def test_gpus(written: object, gpus: GpuRequest) -> None:
    assert read_gpus(written) == gpus
    assert read_gpus(write_gpus(gpus)) == gpus


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (1.5, "the nearest valid are 1 or 2"),
        ("A100:2.5", "the nearest valid are 2 or 3"),
        (-1, "GPUs such as"),
        ("A100:0", "without a kind"),
        ("A100:x", "GPUs such as"),
        ("A100:H100:1", "GPUs such as"),
        ("1:2:3", "GPUs such as"),
        (0.0001, "GPUs such as|from 0.001"),
        (2000, "at most 1024"),
        ("4..1", "a range from 1"),
        ("0..4", "a range from 1"),
        (math.nan, "GPUs such as"),
        (True, "GPUs such as"),
        (None, "GPUs such as"),
        ("", "GPUs such as"),
        ([], "a list of GPU kinds"),
        (["A100:1", "H100:2"], "the same count"),
        (["A100:1", 1], "the same count"),
        (["K:1"] * 40, "at most 32"),
        ("é:1", "GPUs such as"),
    ],
)
def test_no_gpus(written: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_gpus(written)


@given(st.floats(0, 1e8).map(lambda seconds: round(seconds, 3)))
def test_a_duration_is_read_as_it_was_written(seconds: float) -> None:
    assert read_duration(write_duration(seconds)) == seconds


@given(st.integers(1, 1 << 50))
def test_a_size_is_read_as_it_was_written(size: int) -> None:
    assert read_size(write_size(size)) == size
