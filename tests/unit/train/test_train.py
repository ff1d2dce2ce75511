"""The library for training scripts, and the example trainer run for real."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

from roost import train
from roost.train.example.exchange import ExchangePlace, PeerLost, join
from roost.train.example.learner import BATCH, Lessons, TwoLayerNetwork
from roost.train.members import CurrentRank

VARIABLES = (
    "ROOST_MEMBERS",
    "ROOST_MEMBER",
    "ROOST_PROGRESS",
    "ROOST_CHECKPOINT_DIR",
    "RANK",
    "WORLD_SIZE",
    "MASTER_PORT",
)
EXAMPLE = [sys.executable, "-m", "roost.train.example"]


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(CurrentRank, "now", None)
    monkeypatch.setattr(train._Memory, "total", 0.0)
    monkeypatch.setattr(train._Memory, "stopping", False)
    monkeypatch.setattr(train._Memory, "watching", False)
    earlier = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, earlier)


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    path = tmp_path / "progress"
    monkeypatch.setenv("ROOST_PROGRESS", str(path))
    return lambda: [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOST_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    return tmp_path / "checkpoints"


def test_outside_of_roost_nothing_happens() -> None:
    train.report(1, 2, 0.5, 1)
    assert train.checkpoint_dir() is None
    assert train.latest_checkpoint() is None
    assert (train.rank(), train.world_size()) == (0, 1)


def test_progress_is_told_as_parts_of_the_whole(told: Callable[[], list[dict[str, Any]]]) -> None:
    train.report(step=50, total=200, loss=0.25, saved=40)
    train.report(100)
    train.report(loss=0.125)
    train.report(step=900)
    assert told() == [
        {"step": 50, "done": 0.25, "loss": 0.25, "saved": 0.2},
        {"step": 100, "done": 0.5},
        {"loss": 0.125},
        {"step": 900, "done": 1.0},
    ]


def test_more_is_told_if_it_is_known(told: Callable[[], list[dict[str, Any]]]) -> None:
    train.report(1, step_s=0.5, batch=64, noise=None, world=2, moon=3)
    train.report(1, sync_s=0.125, local_batch=32, epochs=1.5)
    train.report(2, loss=np.float32(0.25), memory_mib=np.int64(7))  # type: ignore[arg-type]
    assert told() == [
        {"step": 1, "step_s": 0.5, "batch": 64, "world": 2},
        {"step": 1, "sync_s": 0.125, "local_batch": 32, "epochs": 1.5},
        {"step": 2, "loss": 0.25, "memory_mib": 7.0},
    ]


def test_what_is_no_number_is_not_told(told: Callable[[], list[dict[str, Any]]]) -> None:
    train.report(loss=np.zeros(3))  # type: ignore[arg-type]
    train.report(step="x", total="y")  # type: ignore[arg-type]
    train.report(4)
    assert [line.get("step") for line in told()] == [4]


def test_a_line_is_written_whole_or_not_at_all(told: Callable[[], list[dict[str, Any]]]) -> None:
    assert not train.tell(long="x" * 4096)
    assert not train.tell(strange=object())
    assert not train.tell()
    assert train.tell(ready="5", note="a\nb")
    assert told() == [{"ready": "5", "note": "a\nb"}]


def test_worker_0_speaks_for_all(
    told: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    train.report(1)
    monkeypatch.setenv("RANK", "1")
    train.report(2)
    assert [line["step"] for line in told()] == [1]


@pytest.mark.parametrize("path", ["/dev/full", "/nowhere/at/all", "/", "\0"])
def test_a_report_that_cannot_be_written_is_lost(path: str) -> None:
    # Not setenv: it would refuse the zero byte.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "environ", {"ROOST_PROGRESS": path})
        train.report(1, 2)


def test_a_pipe_that_is_full_or_unread_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setenv("ROOST_PROGRESS", str(pipe))
    train.report(1, 2)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for step in range(20_000):
            train.report(step, 20_000)
        assert os.read(reader, 100).startswith(b'{"step": 0, "done": 0.0}\n')
    finally:
        os.close(reader)


def test_a_checkpoint_is_written_entirely(folder: Path) -> None:
    assert train.latest_checkpoint() is None
    path = train.save("model.bin", lambda file: file.write(b"weights"))
    assert path == folder / "model.bin"
    assert path.read_bytes() == b"weights"
    assert train.latest_checkpoint() == path
    assert [item.name for item in folder.iterdir()] == ["model.bin"]


def test_a_checkpoint_that_fails_leaves_the_older_one(folder: Path) -> None:
    train.save("model.bin", lambda file: file.write(b"old"))

    def fails(file: BinaryIO) -> None:
        file.write(b"new")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        train.save("model.bin", fails)
    assert (folder / "model.bin").read_bytes() == b"old"
    assert [item.name for item in folder.iterdir()] == ["model.bin"]


def test_the_newest_checkpoint_that_matches(folder: Path) -> None:
    for age, name in enumerate(("b.pt", "a.pt", "c.txt", ".hidden.pt")):
        train.save(name, lambda file: file.write(b""))
        os.utime(folder / name, (1_000 - age, 1_000 - age))
    (folder / "z.pt").mkdir()
    assert train.latest_checkpoint("*.pt") == folder / "b.pt"
    assert train.latest_checkpoint("a*") == folder / "a.pt"
    assert train.latest_checkpoint("x*") is None


def test_an_absolute_path_is_taken_as_it_is(folder: Path, tmp_path: Path) -> None:
    path = train.save(tmp_path / "deep" / "er" / "m", lambda file: file.write(b"x"))
    assert path == tmp_path / "deep" / "er" / "m"
    assert not folder.exists()


def test_a_stop_is_noticed_and_an_earlier_handler_is_kept() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    assert not train.should_stop()
    signal.raise_signal(signal.SIGTERM)
    assert train.should_stop()
    assert seen == [signal.SIGTERM]


def test_another_thread_cannot_watch() -> None:
    before = signal.getsignal(signal.SIGTERM)
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(train.should_stop()))
    thread.start()
    thread.join()
    assert found == [False]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("written", "rank"), [("3", 3), ("x", 0), ("", 0)])
def test_ranks(written: str, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", written)
    monkeypatch.setenv("WORLD_SIZE", written)
    assert (train.rank(), train.world_size()) == (rank, max(1, rank))


def test_it_imports_nothing_of_roost() -> None:
    code = "import sys, roost.train; print([m for m in sys.modules if m.startswith('roost')])"
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (
        "['roost', 'roost.train.lines', 'roost.train.members', 'roost.train.saver', 'roost.train']"
    )


# The trainer.


def test_all_workers_together_take_the_step_of_one() -> None:
    lessons, network = Lessons(1), TwoLayerNetwork.new(8, 1)
    whole, missed = network.slope(*lessons.batch(3, 0, 1))
    parts = [network.slope(*lessons.batch(3, rank, 3)) for rank in range(3)]
    assert np.allclose(sum(part for part, _ in parts), whole)
    assert np.isclose(sum(part for _, part in parts), missed)


def test_the_slope_is_that_of_the_error() -> None:
    lessons, network = Lessons(1), TwoLayerNetwork.new(4, 1)
    rows = lessons.batch(0, 0, 8)
    slope, missed = network.slope(*rows)
    for place in (0, 30, 66, 70, -1):
        network.weights[place] += 1e-6
        assert (network.slope(*rows)[1] - missed) / 2e-6 == pytest.approx(slope[place], rel=1e-3)
        network.weights[place] -= 1e-6
    assert len(lessons.batch(0, 0, 1)[0]) == BATCH


def test_a_lost_worker_is_an_error_for_the_others() -> None:
    port = _port()
    seen: list[object] = []
    leave = threading.Event()

    def second() -> None:
        others = join(ExchangePlace(("127.0.0.1", port), 1, 2, patience_s=10.0))
        seen.append(others.total(np.array([2.0])).tolist())
        leave.wait(60)
        others.close()

    thread = threading.Thread(target=second)
    thread.start()
    first = join(ExchangePlace(("127.0.0.1", port), 0, 2, patience_s=10.0))
    assert first.total(np.array([1.0])).tolist() == [3.0]
    leave.set()
    with pytest.raises(PeerLost, match="worker 1 is lost: it closed the connection"):
        first.total(np.array([1.0]))
    first.close()
    thread.join()
    assert seen == [[3.0]]


def test_workers_that_do_not_come_are_named() -> None:
    with pytest.raises(PeerLost, match=r"workers \[1\] did not come"):
        join(ExchangePlace(("127.0.0.1", _port()), 0, 2, patience_s=1.0))
    with pytest.raises(PeerLost, match="worker 0 does not answer"):
        join(ExchangePlace(("127.0.0.1", _port()), 1, 2, patience_s=0.1))


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(*arguments: str, **variables: object) -> subprocess.Popen[str]:
    environ = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return subprocess.Popen(  # noqa: S603 - our own
        [*EXAMPLE, "--size", "8", *arguments],
        env={**environ, **{name: str(value) for name, value in variables.items()}},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def run(*arguments: str, **variables: object) -> tuple[int, str, str]:
    return finished(start(*arguments, **variables))


def wait_for(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    pytest.fail(f"{text!r} was not said")


def test_a_training_learns_and_ends(tmp_path: Path) -> None:
    progress = tmp_path / "progress"
    code, out, err = run("--steps", "300", ROOST_PROGRESS=progress, ROOST_CHECKPOINT_DIR=tmp_path)
    assert (code, err) == (0, "")
    assert "done: 300 steps" in out
    told = [json.loads(line) for line in progress.read_text().splitlines()]
    assert told[-1]["done"] == told[-1]["saved"] == 1.0
    network = TwoLayerNetwork.load(tmp_path / "example.npz", 8)
    assert (network.step, network.total) == (300, 300)
    fresh = TwoLayerNetwork.new(8, 1)
    _, missed = fresh.slope(*Lessons(1).batch(0, 0, 1))
    assert network.loss == told[-1]["loss"] < missed / BATCH / 3


def test_the_time_that_is_asked_for_is_about_what_it_takes() -> None:
    before = os.times()
    code, out, _ = run("--seconds", "0.6")
    used = os.times()
    assert code == 0
    assert "done: " in out
    # Of the processor: others use this machine too. Starting takes some as well.
    spent = used.children_user + used.children_system
    assert 0.45 < spent - before.children_user - before.children_system < 2.5


def test_a_training_that_is_killed_resumes(tmp_path: Path) -> None:
    first = start("--steps", "1000000", ROOST_CHECKPOINT_DIR=tmp_path)
    while not (tmp_path / "example.npz").exists():
        wait_for(first, "loss")
    first.kill()
    finished(first)
    saved = TwoLayerNetwork.load(tmp_path / "example.npz", 8)
    assert 0 < saved.step < saved.total
    more = saved.step + 5
    code, out, _ = run("--steps", str(more), ROOST_CHECKPOINT_DIR=tmp_path)
    assert code == 0
    assert f"begins at step {saved.step}\n" in out
    assert f"done: {more} steps" in out
    code, out, _ = run("--steps", str(more), ROOST_CHECKPOINT_DIR=tmp_path)
    assert f"begins at step {more}\ndone: {more} steps, loss 0." in out


def test_a_training_that_is_stopped_saves_itself(tmp_path: Path) -> None:
    process = start("--seconds", "20", ROOST_CHECKPOINT_DIR=tmp_path)
    wait_for(process, "loss")
    process.terminate()
    code, out, _ = finished(process)
    assert code == 143
    step = TwoLayerNetwork.load(tmp_path / "example.npz", 8).step
    assert f"stopped at step {step}\n" in out


def test_a_damaged_checkpoint_is_no_end(tmp_path: Path) -> None:
    (tmp_path / "example.npz").write_bytes(b"PK\x03\x04 no")
    code, out, _ = run("--steps", "2", ROOST_CHECKPOINT_DIR=tmp_path)
    assert code == 0
    assert "starts anew: " in out


def test_two_workers_take_the_same_steps_as_one(tmp_path: Path) -> None:
    port = _port()
    (tmp_path / "two").mkdir()
    settings = {"WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    pair = [
        start("--steps", "40", RANK=rank, ROOST_CHECKPOINT_DIR=tmp_path / "two", **settings)
        for rank in (1, 0)
    ]
    assert [finished(process)[0] for process in pair] == [0, 0]
    run("--steps", "40", ROOST_CHECKPOINT_DIR=tmp_path / "one")
    one, two = (TwoLayerNetwork.load(tmp_path / name / "example.npz", 8) for name in ("one", "two"))
    assert np.allclose(one.weights, two.weights)
    assert two.step == 40


@pytest.mark.parametrize("killed", [0, 1])
def test_a_worker_without_its_peer_fails(killed: int) -> None:
    settings = {"WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _port()}
    pair = [start("--seconds", "20", RANK=rank, **settings) for rank in (0, 1)]
    for process in pair:
        wait_for(process, "begins at step 0")
    pair[killed].kill()
    code, _, err = finished(pair[1 - killed])
    finished(pair[killed])
    assert code == 1
    assert f"error: worker {killed} is lost" in err


@pytest.mark.parametrize(
    ("failure", "code", "said"),
    [
        ("import", 1, "ModuleNotFoundError: No module named 'a_module_that_is_not_installed'"),
        ("oom", 1, "Unable to allocate"),
        ("diverge", 1, "error: loss is nan at step 17: the training diverged"),
        ("exit:7", 7, ""),
    ],
)
def test_failures_on_request(failure: str, code: int, said: str) -> None:
    found, out, err = run("--steps", "30", "--fail", failure, "--at", "0.5")
    assert found == code
    assert said in err
    assert "done" not in out


def test_a_full_disk_does_not_end_a_training() -> None:
    code, _, err = run("--steps", "3", ROOST_CHECKPOINT_DIR="/proc/nowhere")
    assert code == 0
    assert "not saved: " in err


@pytest.mark.parametrize(
    "wrong", ["--steps=0", "--seconds=0", "--save-every=-1", "--fail=exit:x", "--fail=boom"]
)
def test_wrong_options(wrong: str) -> None:
    assert run(wrong)[0] == 2
