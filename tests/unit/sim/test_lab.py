from __future__ import annotations

import json
import subprocess
import sys

from roost.sim.lab import LabBounds, LabQuestion, answer, question_line
from roost.sim.scenario import Scenario, uniform_cluster
from roost.traces.generate import Synthetic


def question(jobs: int = 60, seeds: tuple[int, ...] = (0,)) -> LabQuestion:
    scenario = Scenario(Synthetic(jobs=jobs, gpus=16, load=1.2), uniform_cluster(4, 4))
    return LabQuestion(scenario, ("fifo", "srtf"), "consolidate", seeds)


def asked(line: bytes) -> dict[str, object]:
    process = subprocess.Popen(
        [sys.executable, "-m", "roost.sim.lab"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write(line)
        process.stdin.flush()
        answered = process.stdout.readline()
        process.stdin.close()
    found: dict[str, object] = json.loads(answered)
    return found


def test_policies_are_compared_with_what_a_page_draws() -> None:
    found = answer(question(seeds=(0, 1)))
    assert [(run["policy"], run["seed"]) for run in found["runs"]] == [
        ("fifo", 0),
        ("fifo", 1),
        ("srtf", 0),
        ("srtf", 1),
    ]
    assert (found["jobs"], found["nodes"], found["gpus"]) == (60, 4, 16)
    run = found["runs"][0]
    assert len(run["jct"]["x"]) == len(run["jct"]["y"]) == 60
    assert run["jct"]["x"] == sorted(run["jct"]["x"])
    assert run["jct"]["y"][-1] == 1
    assert len(run["series"]["time"]) == len(run["series"]["allocated"]["v"])
    assert max(run["series"]["allocated"]["v"]) <= 16
    assert "by_queue" not in run["summary"]
    fifo, srtf = found["table"]
    assert fifo["against_first"] == {}
    assert srtf["figures"]["jct_mean"]["mean"] < fifo["figures"]["jct_mean"]["mean"]


def test_the_same_question_has_the_same_answer_in_another_process() -> None:
    told = asked(question_line(question(), LabBounds()))
    assert told == {"result": json.loads(json.dumps(answer(question())))}
