"""The example trainer changes its workers while it runs; this file plays the part of Roost."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.integration.gang_of_members import Gang, free_port

from roost.train.example.learner import BATCH, Lessons, TwoLayerNetwork

WIDTH = 8
TRAINER = [sys.executable, "-m", "roost.train.example", "--size", str(WIDTH)]
#: More steps than anybody waits for: the test says when it is enough.
ENDLESS = [*TRAINER, "--steps", "1000000000"]


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    with Gang(tmp_path / "gang", ENDLESS) as gang:
        yield gang


def undisturbed(steps: int) -> TwoLayerNetwork:
    """What one worker, left alone, learns in so many steps."""
    network, lessons = TwoLayerNetwork.new(WIDTH, 1), Lessons(1)
    for _ in range(steps):
        slope, missed = network.slope(*lessons.batch(network.step, 0, 1))
        network.move(slope / BATCH)
        network.loss = missed / BATCH
    return network


def learned(gang: Gang) -> TwoLayerNetwork:
    """Stop all, and see what they have learned: the same as one worker left alone."""
    members = gang.members
    gang.signal(signal.SIGTERM, *members)
    assert {name: gang.processes[name].wait(60) for name in members} == dict.fromkeys(members, 143)
    network = TwoLayerNetwork.load(gang.checkpoints / "example.npz", WIDTH)
    expected = undisturbed(network.step)
    assert network.loss == pytest.approx(expected.loss, rel=1e-6)
    assert np.allclose(network.weights, expected.weights, rtol=1e-6, atol=1e-8)
    return network


def steps_on(gang: Gang) -> int:
    """Wait until they have trained some more; returns the step."""
    now = gang.hear_new(lambda line: "step" in line)["step"]
    return int(gang.hear_step(now + 20)["step"])


def test_workers_come_and_go_and_the_first_never_stops(gang: Gang) -> None:
    gang.start(1)
    before = [steps_on(gang)]
    pids = {name: process.pid for name, process in gang.processes.items()}
    for expected in (2, 3):
        joined = gang.grow()
        assert (joined["world"], joined["member"]) == (expected, "0")
        assert 0.0 <= joined["pause_s"] < 5.0
        before.append(steps_on(gang))
    assert gang.shrink("1", "2")["world"] == 1
    before.append(steps_on(gang))
    assert gang.processes["0"].pid == pids["0"]
    assert before == sorted(before)
    assert "begins at step 0\n" in gang.output("0")
    assert "leaves at step" in gang.output("2")
    network = learned(gang)
    assert network.step >= before[-1]
    # Nobody went back: a step that is reported was never reported before.
    steps = [line["step"] for line in gang.heard if "step" in line]
    assert steps == sorted(steps)
    assert {line["world"] for line in gang.heard if "step" in line} == {1, 2, 3}


def test_no_checkpoint_is_read_to_change(gang: Gang) -> None:
    gang.start(1)
    steps_on(gang)
    names = gang.add()
    gang.hear_ready(*names)
    gang.checkpoints.joinpath("example.npz").write_bytes(b"nobody may read this")
    os.chmod(gang.checkpoints, 0o500)  # noqa: PTH101 - nor replace it meanwhile
    gang.change(["0", *names])
    gang.checkpoints.chmod(0o700)
    assert "starts anew" not in gang.output("1")
    steps_on(gang)
    learned(gang)


def test_a_job_moves_to_other_workers(gang: Gang) -> None:
    gang.start(2)
    step = steps_on(gang)
    gang.grow(2)
    joined = gang.shrink("0", "1")
    assert (joined["member"], joined["world"]) == ("2", 2)
    assert gang.hear_new(lambda line: line.get("step", 0) > step)["saved"] > 0
    steps_on(gang)
    assert learned(gang).step > step


@pytest.mark.parametrize("lost", [["0"], ["1"], ["2"], ["0", "2"]])
def test_the_survivors_go_on_without_a_lost_worker(gang: Gang, lost: list[str]) -> None:
    gang.start(3)
    step = steps_on(gang)
    joined = gang.lose(*lost)
    assert joined["member"] == min({"0", "1", "2"} - set(lost))
    steps_on(gang)
    assert learned(gang).step > step


def test_losses_one_after_the_other_while_they_meet(gang: Gang) -> None:
    gang.start(4)
    steps_on(gang)
    gang.kill("3")
    gang.publish(["0", "1", "2"], ["3"])
    gang.kill("0")
    gang.change(["1", "2"], ["0"])
    steps_on(gang)
    learned(gang)


def test_a_loss_is_awaited_however_long_it_takes_to_be_told(gang: Gang) -> None:
    gang.start(2)
    steps_on(gang)
    gang.kill("1")
    silent = len(gang.heard)
    time.sleep(1.0)
    assert gang.alive() == ["0"]
    assert not [line for line in gang.heard[silent + 2 :] if "step" in line]
    gang.change(["0"], ["1"])
    steps_on(gang)
    learned(gang)


def test_a_new_worker_that_dies_is_not_missed(gang: Gang) -> None:
    gang.start(1)
    steps_on(gang)
    (name,) = gang.add()
    gang.hear_ready(name)
    gang.kill(name)
    steps_on(gang)
    assert gang.grow()["world"] == 2
    steps_on(gang)
    learned(gang)


def test_a_new_worker_that_is_not_let_in_stops_when_asked(gang: Gang) -> None:
    gang.start(1)
    (name,) = gang.add()
    gang.hear_ready(name)
    gang.signal(signal.SIGTERM, name)
    assert gang.processes[name].wait(60) == 143
    steps_on(gang)
    learned(gang)


@pytest.mark.parametrize("frozen", ["0", "1"])
def test_a_frozen_worker_is_not_lost(gang: Gang, frozen: str) -> None:
    gang.start(2)
    steps_on(gang)
    gang.signal(signal.SIGSTOP, frozen)
    time.sleep(1.5)
    assert len(gang.alive()) == 2
    gang.signal(signal.SIGCONT, frozen)
    steps_on(gang)
    learned(gang)
    assert "lost" not in gang.output("0") + gang.output("1")


def test_a_worker_that_is_frozen_while_the_others_change_catches_up(gang: Gang) -> None:
    gang.start(2)
    (name,) = gang.add()
    gang.hear_ready(name)
    steps_on(gang)
    gang.signal(signal.SIGSTOP, "1")
    version = gang.publish(["0", "1", name])
    time.sleep(0.5)
    gang.signal(signal.SIGCONT, "1")
    assert gang.hear_that(joined=version)["world"] == 3
    steps_on(gang)
    learned(gang)


HOSTILE = [
    b"",
    b"{",
    b"null",
    b"[" * 100_000,
    b"\xff\xfe\x00",
    b'{"version": 99}',
    b'{"version": 99, "address": "127.0.0.1:1", "members": []}',
    b'{"version": 99, "address": "127.0.0.1:1", "members": ["0", "0"]}',
    b'{"version": 99, "address": "127.0.0.1:1", "members": "0"}',
    b'{"version": 99, "address": "127.0.0.1:1", "members": [0, {}]}',
    b'{"version": 99, "address": "127.0.0.1:99999", "members": ["0"]}',
    b'{"version": 99, "address": 7, "members": ["0"]}',
    b'{"version": 1e9, "address": "127.0.0.1:1", "members": ["0"]}',
    b'{"version": -1, "address": "127.0.0.1:1", "members": ["5"]}',
    b'{"version": ' + b"9" * 5000 + b', "address": "127.0.0.1:1", "members": ["5"]}',
    b'{"version": true, "address": "127.0.0.1:1", "members": ["5"]}',
    b'{"version": 1, "address": "127.0.0.1:1", "members": ["5"]}',
    b" " * (2 << 20),
]


def test_a_strange_file_changes_nothing(gang: Gang) -> None:
    gang.start(2)
    steps_on(gang)
    for content in HOSTILE:
        gang.write(content)
        time.sleep(0.02)
    gang.file.unlink()
    steps_on(gang)
    os.mkfifo(gang.file)
    steps_on(gang)
    gang.file.unlink()
    gang.file.mkdir()
    steps_on(gang)
    gang.file.rmdir()
    gang.write(json.dumps(gang.said))
    assert gang.grow()["world"] == 3
    steps_on(gang)
    learned(gang)


def test_strangers_at_the_meeting_are_sent_away(gang: Gang) -> None:
    gang.start(1)
    names = gang.add()
    gang.hear_ready(*names)
    version = gang.publish(["0", "9", *names])  # the meeting waits for one that never comes
    host, _, port = gang.said["address"].rpartition(":")
    deadline = time.monotonic() + 60
    while True:
        try:
            stranger = socket.create_connection((host, int(port)), timeout=60)
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    with stranger, suppress(ConnectionResetError):
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert stranger.recv(100) == b""
    assert not [line for line in gang.heard if line.get("joined") == version]
    gang.change(["0", *names])
    steps_on(gang)
    learned(gang)


def test_a_checkpoint_is_written_when_asked_for(tmp_path: Path) -> None:
    with Gang(tmp_path / "gang", [*ENDLESS, "--save-every", "1000"]) as gang:
        gang.start(2)
        steps_on(gang)
        path = gang.checkpoints / "example.npz"
        assert not path.exists()
        asked = gang.ask("save")
        gang.hear_that(saved_for=asked)
        first = TwoLayerNetwork.load(path, WIDTH).step
        steps_on(gang)
        gang.lose("0")
        steps_on(gang)
        asked = gang.ask("save")
        gang.hear_that(saved_for=asked)
        assert TwoLayerNetwork.load(path, WIDTH).step > first
        assert sum("saved_for" in line for line in gang.heard) == 2
        learned(gang)


def test_a_job_gives_way_as_long_as_asked(gang: Gang) -> None:
    gang.start(2)
    steps_on(gang)
    away = gang.ask("offload")
    for name in ("0", "1"):
        gang.hear_that(offloaded=away, member=name)
    quiet = [line["step"] for line in gang.heard if "step" in line][-1]
    time.sleep(0.6)
    assert [line["step"] for line in gang.heard if "step" in line][-1] == quiet
    back = gang.ask("offload")
    gang.hear_that(offloaded=back)
    steps_on(gang)
    learned(gang)


def test_a_change_at_the_very_end_ends_all(tmp_path: Path) -> None:
    with Gang(tmp_path / "gang", [*TRAINER, "--steps", "40"]) as gang:
        gang.start(1)
        gang.signal(signal.SIGSTOP, "0")
        names = gang.add(2)
        gang.hear_ready(*names)
        gang.publish(["0", *names])
        gang.signal(signal.SIGCONT, "0")
        ended = gang.ended()
        assert ended["0"] == 0
        assert set(ended.values()) == {0}


def test_without_a_pipe_everything_goes_on(tmp_path: Path) -> None:
    with Gang(tmp_path / "gang", [*TRAINER, "--steps", "60"], ROOST_PROGRESS="/dev/full") as gang:
        gang.start(2)
        assert gang.ended() == {"0": 0, "1": 0}
        assert gang.heard == []


def test_a_port_that_is_taken_ends_nothing_at_once(gang: Gang) -> None:
    gang.start(1)
    names = gang.add()
    gang.hear_ready(*names)
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        gang.said |= {"version": 2, "address": f"127.0.0.1:{port}", "members": ["0", *names]}
        gang.write(json.dumps(gang.said))
        time.sleep(0.5)
        assert len(gang.alive()) == 2
    assert gang.hear_that(joined=2)["world"] == 2
    steps_on(gang)
    learned(gang)


def test_resized_robbed_and_restarted_at_random_it_learns_the_same(tmp_path: Path) -> None:
    chance = random.Random(5)
    step = 0
    for generation in range(2):
        with Gang(tmp_path / str(generation), [*ENDLESS, "--save-every", "0.05"]) as gang:
            gang.checkpoints = tmp_path / "0" / "checkpoints"
            gang.start(chance.randint(1, 2))
            for _ in range(4):
                gang.hear_new(lambda line: "step" in line)
                disturb(gang, chance)
            steps_on(gang)
            network = learned(gang)
        assert network.step > step
        step = network.step


def disturb(gang: Gang, chance: random.Random) -> None:
    members = gang.members
    if len(members) == 1:
        gang.grow(chance.randint(1, 2))
    elif chance.random() < 0.5:
        gang.lose(chance.choice(members))
    else:
        gang.shrink(chance.choice(members))
