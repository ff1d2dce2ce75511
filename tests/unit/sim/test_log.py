"""Event logs: equal runs have equal logs to the last byte, and a difference is found.

That this holds whatever the seed of hashes is in ``test_saved``.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.oracles.workloads import busy, machines, setup
from tests.support.effort import quick

from roost.errors import InvalidSpec, NotFound
from roost.policies import names
from roost.sim.log import compare_logs, write_log
from roost.sim.simulation import Simulation

Paths = Callable[..., list[Path]]


def simulated(name: str = "tiresias", jobs: int = 30) -> Simulation:
    """A run with failures, elastic jobs, preemptions and resizes."""
    workload = busy(jobs, seed=3, gpus=16, largest=2 if name == "static" else 16)
    return Simulation(setup(quick(name), workload, machines(4, 4), seed=3))


def log(path: Path, simulation: Simulation, until: float = float("inf")) -> bytes:
    with write_log(path) as observer:
        simulation.run(until, observer=observer)
    return path.read_bytes()


@pytest.fixture
def written(tmp_path: Path) -> Paths:
    """Files of these lines."""

    def write(*texts: str) -> list[Path]:
        paths = [tmp_path / f"{number}.jsonl" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        return paths

    return write


def line(kind: str, time: float = 0.0) -> str:
    return json.dumps({"kind": kind, "time": time}) + "\n"


@pytest.mark.parametrize("name", names())
def test_equal_runs_have_equal_logs(name: str, tmp_path: Path) -> None:
    one = log(tmp_path / "a", simulated(name))

    assert one == log(tmp_path / "b", simulated(name))
    assert compare_logs(tmp_path / "a", tmp_path / "b").same


def test_every_line_is_strict_json_in_order_of_time(tmp_path: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    lines = log(tmp_path / "a", simulated("alnair")).splitlines()
    found = [json.loads(text, parse_constant=refuse) for text in lines]

    times = [entry["time"] for entry in found]
    assert times == sorted(times)
    kinds = {entry["kind"] for entry in found}
    assert {"event Submitted", "event Exited", "decision Place", "action Launch"} <= kinds


def test_the_log_is_not_there_before_the_run_is_over(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("old")
    simulation = simulated()

    with write_log(path) as observer:
        simulation.run(observer=observer)
        assert path.read_text() == "old"
    assert path.read_text() != "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_whatever_goes_wrong_leaves_the_old_log_and_no_draft(
    error: BaseException, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_text("old")

    def break_off() -> None:
        with write_log(path) as observer:
            simulated().run(until=1000.0, observer=observer)
            raise error

    with pytest.raises((KeyboardInterrupt, InvalidSpec)):
        break_off()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_to_a_log_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    log(tmp_path / "link", simulated(jobs=2))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").stat().st_size > 0


def test_a_log_can_go_to_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["/bin/cat", pipe], stdout=subprocess.PIPE) as cat:  # noqa: S603
        with write_log(pipe) as observer:
            simulated(jobs=2).run(observer=observer)
        assert cat.stdout is not None
        assert cat.stdout.read() == log(tmp_path / "file", simulated(jobs=2))


@pytest.mark.parametrize(
    ("place", "says"),
    [("", "Is a directory"), ("none/log", "No such file"), ("file/log", "Not a directory")],
)
def test_where_no_log_can_be_written_the_place_is_named(
    place: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidSpec, match=says) as caught, write_log(tmp_path / place):
        pytest.fail("nothing should run")
    assert str(tmp_path / place) in str(caught.value)


def test_the_first_difference_is_found_with_what_stood_before(written: Paths) -> None:
    before = [line("event A", n) for n in range(5)]
    left, right = written("".join([*before, line("x")]), "".join([*before, line("y"), line("z")]))

    found = compare_logs(left, right)

    assert not found.same
    assert found.line == 6
    assert [json.loads(text)["time"] for text in found.before] == [2, 3, 4]
    assert (found.left, found.right) == (line("x").strip(), line("y").strip())
    assert found.left_counts == {"event A": 5, "x": 1}
    assert found.right_counts == {"event A": 5, "y": 1, "z": 1}


def test_a_log_that_ends_early_differs_there(written: Paths) -> None:
    longer, shorter = written(line("a") + line("b"), line("a"))

    assert compare_logs(longer, shorter).line == 2
    assert compare_logs(longer, shorter).right is None
    assert compare_logs(shorter, longer).left is None


def test_empty_logs_are_the_same(written: Paths) -> None:
    assert compare_logs(*written("", "")).same


@pytest.mark.parametrize(
    "text",
    ["\n", "no json\n", "[]\n", "{}\n", "3\n", '{"time":0}\n', "[" * 100_000 + "\n"],
)
def test_what_is_no_line_of_a_log_is_refused_with_its_number(text: str, written: Paths) -> None:
    good, bad = written(line("a") * 2, line("a") + text)
    with pytest.raises(InvalidSpec, match="line 2 is not a line of a Roost event log"):
        compare_logs(good, bad)


def test_what_cannot_be_read_is_named(tmp_path: Path, written: Paths) -> None:
    (good,) = written(line("a"))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name, says in (("none", "no such file"), (".", "Is a directory"), ("bytes", "not text")):
        with pytest.raises((InvalidSpec, NotFound), match=says):
            compare_logs(good, tmp_path / name)
