"""Faults of servers and processes, with a real ``roost up``: what was promised still holds."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.faults.faults import (
    WAIT,
    can,
    cancel_all,
    refused,
    running,
    script,
    trial,
    until,
)
from tests.support import oracles, witness
from tests.support.oracles import Told
from tests.support.server_process import ServerProcess, holders
from tests.support.trial import SubmittedJob, Trial

from roost.store.rows import JobRow, JournalEntry

RESTARTS = int(os.environ.get("ROOST_TEST_RESTARTS", "10"))


def test_a_second_server_is_refused_while_the_first_is_stopped(tmp_path: Path) -> None:
    with trial(tmp_path) as one:
        assert one.begin()
        job = running(one)
        first, second = one.server, ServerProcess(one.server.home, 4)
        note = first.home / "server.json"
        first.send(signal.SIGSTOP)
        try:
            said = refused(second)
            assert f"pid {first.pid}" in said
            told = note.read_text()
            note.unlink()  # the note is for people: the lock counts
            assert f"process {first.pid}" in refused(second)
            note.write_text(told)
        finally:
            first.send(signal.SIGCONT)
        assert one.view(job)["state"] == "running"
        assert running(one).id
        cancel_all(one)
        one.settle()
        assert one.check() == []


ENDS = {
    "exit 0": (0, "succeeded"),
    "exit 7": (7, "failed"),
    "kill -SEGV $$": (139, "failed"),
    "kill -KILL $$": (137, "failed"),
}


def test_jobs_that_end_while_nobody_serves_end_truly(tmp_path: Path) -> None:
    with trial(tmp_path) as one:
        assert one.begin()
        jobs = {text: one.submit(script(one, f"{WAIT}; {text}")) for text in ENDS}
        for job in jobs.values():
            one.until(job, "running")
        one.server.kill()
        before = time.time()
        (one.folder / "go").touch()
        assert until(lambda: not holders(one.server.home))
        after = time.time()
        time.sleep(1.0)  # the next server comes noticeably later
        assert one.begin()
        for text, job in jobs.items():
            view = one.until(job, "succeeded", "failed")
            assert (view["exit_code"], view["state"]) == ENDS[text], view
            assert before - 0.2 <= view["finished_at"] <= after + 0.2
            assert view["attempt"] == 1
        assert one.check() == []


def test_many_restarts_touch_no_job_and_no_log(tmp_path: Path) -> None:
    count = 'i=0; until [ -e "$GO" ]; do i=$((i+1)); echo $i; sleep 0.01; done'
    with trial(tmp_path, seed=3) as one:
        assert one.begin()
        jobs = [one.submit(script(one, count)) for _ in range(3)]
        for job in jobs:
            one.until(job, "running")
        pids = sorted(process.pid for process in oracles.carrying(one.mark))
        for _ in range(RESTARTS):
            one.server.kill()
            one.server.start()
            # At any moment: before it is up, while it adopts, or when it serves.
            if one.chance.random() < 0.3:
                assert one.server.ready()
            else:
                time.sleep(one.chance.uniform(0.0, 0.8))
        one.server.kill()
        assert one.begin()
        assert set(pids) & {process.pid for process in oracles.carrying(one.mark)}
        (one.folder / "go").touch()
        for job in jobs:
            view = one.until(job, "succeeded")
            assert (view["attempt"], view["failures"]) == (1, 0)
            answer = one.server.ask("GET", f"/api/v1/jobs/{job.id}/logs")
            assert answer is not None
            numbers = [int(line) for line in answer.text.split()]
            assert numbers == list(range(1, len(numbers) + 1))
            assert len(numbers) > 10
        assert one.check() == []


#: Commands in all orders, for jobs that end at once, soon, or not by themselves.
ORDERS = list(itertools.permutations(("cancel", "suspend", "resume", "pause")))
LASTS = (0.0, 0.05, 0.3)


def test_commands_in_all_orders_have_one_end(tmp_path: Path) -> None:
    with trial(tmp_path, seed=4, slots=3) as one:
        assert one.begin()
        chances = [random.Random(f"order-{number}") for number in range(len(ORDERS) * len(LASTS))]
        cases = list(zip(itertools.product(ORDERS, LASTS), chances, strict=True))
        one.chance.shuffle(cases)
        with ThreadPoolExecutor(6) as pool:
            found = list(
                pool.map(lambda case: ordered(one, case[0][0], case[0][1], case[1]), cases)
            )
        one.settle()
        ledger = oracles.read_ledger(one.folder / "ledger")
        for job, starts in found:
            last = one.view(job)["state"]
            assert last in ("succeeded", "cancelled"), one.view(job)
            if starts is not None:  # it was over when its cancellation was acknowledged
                assert sum(line.job == job.id and line.what == "start" for line in ledger) == starts
        assert one.check() == []


def ordered(
    one: Trial, order: tuple[str, ...], lasts: float, chance: random.Random
) -> tuple[SubmittedJob, int | None]:
    """Give a job commands in that order; it, and how often it had started when it was over."""
    asked = SubmittedJob(
        f"key-{'-'.join(order)}-{lasts}", witness.document(one.folder, chance, lasts)
    )
    one.ask_for(asked)
    one.jobs.append(asked)
    starts = None
    for verb in order:
        time.sleep(chance.choice((0.0, 0.0, 0.02, 0.2)))
        if verb == "pause":
            continue
        answer = one.command(asked, verb)
        if verb == "cancel" and answer is not None and answer.is_success:
            over = answer.json()["state"] in ("cancelled", "succeeded")
            ledger = oracles.read_ledger(one.folder / "ledger") if over else []
            mine = [line for line in ledger if line.job == asked.id and line.what == "start"]
            starts = len(mine) if over else None
    return asked, starts


def test_deletions_are_held_against_the_journal() -> None:
    """The oracle sees a deletion that was acknowledged and lost, and one that did nothing."""
    submitted = {"type": "Submitted", "job": "a-1"}
    made = JournalEntry(1, "id-1", 1.0, {"events": [submitted], "notes": {}})
    gone = JournalEntry(2, "id-2", 2.0, {"events": [], "notes": {"deleted": "a-1"}})
    told, rows = [Told("delete", "a-1")], {"a-1": JobRow("a-1", "a", "ada", "default", "failed")}
    assert oracles.accounted([made, gone], told, {}) == []
    (lost,) = oracles.accounted([made], told, rows)
    assert lost == "delete of a-1 was acknowledged and is not in the journal"
    assert oracles.accounted([made, gone], [], rows) == ["job a-1 was deleted and is listed"]


#: The shell is the first process there, and takes leave of orphans as the first process must.
NAMESPACE = ("unshare", "-Urpfm", "--mount-proc", "--kill-child", "sh", "-c", '"$@"; exit $?', "sh")
REUSE = """
import json, os, random, signal, subprocess, sys, time
from pathlib import Path
from tests.support import oracles, witness
from tests.support.trial import Trial, shim_of

def bystander(pid):
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
    found = subprocess.Popen(["sleep", "600"], start_new_session=True)
    assert found.pid == pid, (found.pid, pid)
    return found

one = Trial(Path(sys.argv[1]), random.Random(1), 2)
try:
    assert one.begin()
    numbers = [one.server.pid]
    # One leaves a process behind when it is killed, one does not: its number is free at once.
    leaving = one.submit(witness.document(one.folder, one.chance, 60.0))
    one.until(leaving, "running")
    (shim,) = {shim_of(process.pid) for process in oracles.carrying(one.mark)}
    numbers.append(shim)
    mark = {witness.MARK: str(one.folder)}
    again = {"max": 3, "delay": 0}
    plain = one.submit({"name": "plain", "command": ["sleep", "60"], "env": mark, "retry": again})
    one.until(plain, "running")
    (worker,) = (p.pid for p in oracles.carrying(one.mark) if p.job == plain.id)
    numbers += [worker, shim_of(worker)]
    one.server.kill()
    os.kill(shim, signal.SIGKILL)
    os.kill(shim_of(worker), signal.SIGKILL)
    while any(Path(f"/proc/{pid}").exists() for pid in numbers):
        time.sleep(0.01)
    others = [bystander(pid) for pid in numbers]
    assert list(oracles.carrying(one.mark)), "nothing was left behind"
    assert one.begin(), one.server.said()
    for job in (leaving, plain):
        assert one.until(job, "running", within_s=30.0)["attempt"] == 2
        one.command(job, "cancel")
    one.settle()
    problems = one.check()
    print(json.dumps([problems, [other.poll() for other in others]]))
finally:
    one.close()
"""


@pytest.mark.skipif(
    not can(*NAMESPACE, "sh", "-c", "echo 1000 > /proc/sys/kernel/ns_last_pid"),
    reason="needs unshare with PID namespaces",
)
def test_a_number_that_is_used_again_is_left_alone(tmp_path: Path) -> None:
    command = [*NAMESPACE, sys.executable, "-c", REUSE, str(tmp_path / "trial")]
    found = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)  # noqa: S603
    assert found.returncode == 0, found.stdout + found.stderr
    assert json.loads(found.stdout) == [[], [None] * 4]
