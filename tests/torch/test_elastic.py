"""Elastic PyTorch training with real processes; the gang plays the part of Roost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from tests.integration.gang_of_members import Gang
from tests.torch.torch_member import BATCH, network, work

import torch

SCRIPT = Path(__file__).with_name("torch_member.py")
#: Where the newest checkpoint is.
PATTERN = "elastic-*.pt"
SLOW_S = 90.0


def gang_of(*arguments: str, at: Path, **environ: object) -> Gang:
    here = str(SCRIPT.parent.parent.parent)
    command = [sys.executable, str(SCRIPT), *arguments]
    return Gang(at / "gang", command, OMP_NUM_THREADS=1, PYTHONPATH=here, **environ)


def checkpoint(gang: Gang) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(max(gang.checkpoints.glob(PATTERN)), weights_only=True)
    return found


def undisturbed(steps: int) -> dict[str, Any]:
    """What one worker, left alone, learns in so many steps."""
    model = network()
    work(model, steps)
    found: dict[str, Any] = model.state_dict()
    return found


def close_to(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(torch.allclose(one[name], other[name], rtol=1e-7, atol=1e-9) for name in other)


def notes(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("notes-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def check_each_sample_once(folder: Path, steps: int, samples: int) -> None:
    """A step that was taken again counts once: its samples are the same."""
    by_step: dict[tuple[int, int], set[int]] = {}
    for line in notes(folder):
        if line["step"] < steps:
            by_step.setdefault((line["epoch"], line["step"]), set()).update(line["samples"])
    assert sorted(step for _, step in by_step) == list(range(steps))
    for epoch in range(max(epoch for epoch, _ in by_step)):  # the last may be unfinished
        used = Counter(n for (of, _), some in by_step.items() if of == epoch for n in some)
        assert used == Counter(range(samples))


def says(key: str, value: object, line: dict[str, Any]) -> bool:
    return line.get(key) == value


def answers(number: int, member: str, line: dict[str, Any]) -> bool:
    return (line.get("offloaded"), line.get("member")) == (number, member)


def trains_on(gang: Gang, steps: int = 10) -> None:
    now = gang.hear_new(lambda line: "step" in line, SLOW_S)["step"]
    gang.hear_step(now + steps, SLOW_S)


def test_workers_come_go_freeze_and_die_and_it_learns_what_one_alone_would(tmp_path: Path) -> None:
    with gang_of(str(tmp_path), "--pause", "0.004", at=tmp_path) as gang:
        gang.start(2)
        gang.hear_step(5, SLOW_S)
        new = gang.add(2)
        for name in new:
            gang.hear(partial(says, "ready", name), SLOW_S)
        joined = gang.change(["0", "1", "2", "3"])
        assert (joined["world"], joined["member"]) == (4, "0")
        assert 0.0 < joined["pause_s"] < 2.0
        trains_on(gang)
        # The first one leaves: another speaks for all, writes the checkpoints, gives the state.
        assert gang.shrink("0")["member"] == "1"
        trains_on(gang)
        # One hangs: nobody closes its connections, Roost says that it is lost.
        gang.signal(signal.SIGSTOP, "2")
        assert gang.change(["1", "3"], ["2"])["world"] == 2
        gang.kill("2")
        trains_on(gang)
        number = gang.ask("save")
        gang.hear(lambda line: line.get("saved_for") == number)
        for _ in range(2):
            number = gang.ask("offload")
            for name in ("1", "3"):  # nobody answers for the others
                gang.hear(partial(answers, number, name), SLOW_S)
        assert gang.lose("1")["member"] == "3"
        trains_on(gang)
        gang.signal(signal.SIGTERM, "3")
        assert gang.ended() == {"0": 0, "1": -9, "2": -9, "3": 143}
        saved = checkpoint(gang)
        reported = [line for line in gang.heard if "step" in line]
    assert [line["step"] for line in reported] == sorted(line["step"] for line in reported)
    assert {line["world"] for line in reported} == {1, 2, 3, 4}
    assert any(line.get("noise") for line in reported)
    epochs = [line["epochs"] for line in reported]
    assert epochs == sorted(epochs)
    assert epochs[-1] > 0
    shares = {line["world"]: line["local_batch"] for line in reported}
    assert shares == {size: -(-BATCH // size) for size in (1, 2, 3, 4)}
    waits = {line["world"] for line in reported if line.get("sync_s", 0.0) > 0}
    assert waits
    assert 1 not in waits
    check_each_sample_once(tmp_path, saved["step"], 97)
    assert close_to(saved["model"], undisturbed(saved["step"]))


def test_suspended_killed_and_started_again_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    learned = []
    for kind in ("undisturbed", "disturbed"):
        folder = tmp_path / kind
        folder.mkdir()
        arguments = (str(folder), "--steps", "150", "--deterministic", "--pause", "0.002")
        if kind == "disturbed":
            with gang_of(*arguments, at=tmp_path / "first", ROOST_CHECKPOINT_DIR=folder) as gang:
                gang.start(2)
                gang.hear_step(10, SLOW_S)
                gang.hear(partial(says, "saved_for", gang.ask("save")))
                for what in (signal.SIGSTOP, signal.SIGCONT):
                    gang.signal(what)
                gang.hear_step(60, SLOW_S)
                for name in ("0", "1"):
                    gang.kill(name)
        with gang_of(*arguments, at=tmp_path / kind, ROOST_CHECKPOINT_DIR=folder) as gang:
            gang.start(2)
            assert set(gang.ended().values()) == {0}
        learned += [torch.load(path) for path in sorted(folder.glob("learned-*.pt"))]
    assert len(learned) == 4
    for other in learned[1:]:
        assert all(torch.equal(learned[0][name], other[name]) for name in other)


def test_workers_that_train_different_models_are_told_so(tmp_path: Path) -> None:
    with gang_of(str(tmp_path), at=tmp_path, WIDER_1=2) as gang:
        gang.start(2)
        assert gang.ended() == {"0": 1, "1": 1}
        for name in ("0", "1"):
            assert "0.weight is float64 [5, 4] in worker 0 and float64 [7, 4] in worker 1" in (
                gang.output(name)
            )


def test_a_second_training_begins_anew_and_cannot_be_joined(tmp_path: Path) -> None:
    arguments = (str(tmp_path), "--steps", "20", "--twice", "--pause", "0.004")
    with gang_of(*arguments, at=tmp_path) as gang:
        gang.start(2)
        assert gang.processes["0"].poll() is None
        second = tmp_path / "second-0.jsonl"
        gang.hear_step(19, SLOW_S)
        gang.hear_new(lambda line: second.exists() and "step" in line, SLOW_S)
        gang.hear(partial(says, "saved_for", gang.ask("save")))
        gang.add()
        gang.hear(lambda line: line.get("ready") == "2", SLOW_S)
        gang.publish(["0", "1", "2"])
        assert gang.processes["2"].wait(SLOW_S) == 1
        assert "the others are in training 2 of the script" in gang.output("2")
        trains_on(gang)
        first = json.loads(second.read_text().splitlines()[0])
        found = {path.name[:10] for path in gang.checkpoints.glob("elastic-*.pt")}
    assert (first["step"], first["epoch"], first["size"]) == (0, 0, 2)
    assert found == {"elastic-00", "elastic-2-"}
    check_each_sample_once(tmp_path, 20, 97)


def test_a_stranger_does_not_disturb_those_that_train(tmp_path: Path) -> None:
    with gang_of(str(tmp_path), "--pause", "0.004", at=tmp_path, WIDER_1=2) as gang:
        gang.start(1)
        gang.hear_step(5, SLOW_S)
        gang.add()
        gang.hear(lambda line: line.get("ready") == "1", SLOW_S)
        gang.publish(["0", "1"])
        assert gang.processes["1"].wait(SLOW_S) == 1
        assert "the workers do not train the same" in gang.output("1")
        trains_on(gang)
        assert gang.change(["0"])["world"] == 1
        trains_on(gang)


def test_under_torchrun_it_trains_as_it_is(tmp_path: Path) -> None:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("ROOST_")}
    environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parent.parent.parent)}
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(  # noqa: S603 - our own
        [*run, str(SCRIPT), str(tmp_path), "--steps", "30"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=SLOW_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = undisturbed(30)
    for rank in (0, 1):
        assert close_to(torch.load(tmp_path / f"learned-{rank}.pt"), expected)
    check_each_sample_once(tmp_path, 30, 97)
