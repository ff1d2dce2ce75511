"""The local engine on real processes: what is reported is what happened, whoever was killed."""

from __future__ import annotations

import asyncio
import json
import math
import os
import pickle
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.local_world import (
    KILLED,
    PYTHON,
    World,
    alive,
    apart,
    assigned,
    await_end,
    await_file,
    clear,
    left_of,
    python,
    run_id,
    shell,
    world,
)

from roost.core.actions import Launch, Migrate, Resize, Resume, Stop, Suspend
from roost.core.allocation import Allocation, Part
from roost.core.events import NodeJoined, Resized, Started, Suspended
from roost.core.spec import JobSpec, Range, Resources, Role, RunId
from roost.engines import (
    Assigned,
    Delayed,
    Ended,
    LaunchTrouble,
    ProgressReport,
    RunOrder,
    WorkerExit,
)
from roost.engines.local.devices import node_name
from roost.engines.local.shim import slot_file
from roost.engines.local.shim.process_tree import descendants
from roost.errors import Conflict, InvalidSpec, NotFound
from roost.jobfile.program import Program, Task

FOREVER = "exec sleep 600"
GATED = 'until [ -e "$HOME/go" ]; do sleep 0.01; done; '


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home that other accounts can enter too; nothing is left of it."""
    place = Path(tempfile.mkdtemp(prefix="engine-"))
    place.chmod(0o711)
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("ROOST_API_TOKEN", "never-for-jobs")
    yield place
    clear(place)
    shutil.rmtree(place)


def test_a_node_joins_and_says_what_it_is(home: Path) -> None:
    with world(home, slots=3) as here:
        joined = here.until(NodeJoined)

    assert (joined.node.gpus, joined.node.kind) == (3, "cpu-slot")
    assert joined.node.cpu_milli == 1000 * len(os.sched_getaffinity(0))
    assert "limit" in here.engine.limits


def test_how_busy_a_run_is_can_be_seen_from_outside(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.engines.local.usage_sampler.EVERY_S", 0.05)
    with world(home) as here:
        job = here.launch("idle", shell(FOREVER))
        told = here.until(ProgressReport, job)
        here.end(job)

    assert told.busy is not None
    assert 0 <= told.busy <= 1


def test_one_engine_at_a_time(home: Path) -> None:
    with world(home):
        other = World(home)
        with pytest.raises(Conflict, match="another engine serves"):
            other.start()
        other.close()


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [("exit 0", 0, None), ("exit 7", 7, None), ("kill -SEGV $$", None, signal.SIGSEGV)],
)
def test_ends_are_true_also_while_nobody_serves(
    home: Path, script: str, code: int | None, number: int | None
) -> None:
    with world(home) as here:
        run = here.launch("job", shell(GATED + script))
        here.until(Started, run)
    before = time.time()
    (home / "go").touch()
    await_end(home, run)
    after = time.time()

    with world(home, alive={run: assigned()}) as here:
        ended = here.until(Ended, run)

    assert ended.exits == (WorkerExit("worker", 0, code, number),)
    assert ended.cause == "exit"
    assert before - 0.05 <= ended.time <= after + 0.05


def test_a_log_has_no_gap_and_no_repeat_over_restarts(home: Path) -> None:
    count = "import time\nfor i in range(10**9):\n print(i, flush=True)\n time.sleep(0.0002)"
    with world(home) as here:
        run = here.launch("count", python(count))
        here.until(Started, run)
    known = {run: assigned()}
    for _ in range(5):
        with world(home, alive=known) as here:
            here.until(Started, run)
            seen = len(here.log(run).split())
            here.follow(run, f"\n{seen + 20}\n")
    with world(home, alive=known) as here:
        ended = here.end(run)
        numbers = here.log(run).split()

    assert ended.cause == "stopped"
    assert numbers == [str(i) for i in range(len(numbers))]


def test_orders_can_be_given_again(home: Path) -> None:
    program = shell("echo started; exec sleep 600")
    with world(home) as here:
        run = here.launch("job", program)
        here.until(Started, run)
        here.launch("job", program)
        here.until(Started, run)
        here.follow(run, "started\n")

        first = here.end(run)
        here.launch("job", program)
        again = here.until(Ended, run)
        assert (again.exits, again.cause) == (first.exits, "stopped")
        assert here.log(run) == "started\n"
        assert here.end(run).exits == first.exits
        assert here.end(run_id("unknown")).cause == "stopped"


def test_what_nobody_asked_for_is_stopped(home: Path) -> None:
    with world(home) as here:
        run = here.launch("job", shell(FOREVER))
        here.until(Started, run)

    with world(home) as here:
        assert here.until(Ended, run).cause == "stopped"
    assert left_of(home) == []


def test_an_order_without_an_answer_is_given_again_on_start(home: Path) -> None:
    run, program = run_id("job"), shell("exit 3")
    with world(home, alive={run: assigned(launching("job", program))}) as here:
        ended = here.until(Ended, run)

    assert ended.exits == (WorkerExit("worker", 0, 3, None),)


@pytest.mark.parametrize("point", ["effect.before-fork", "effect.after-fork"])
def test_a_server_killed_around_the_fork_starts_a_job_once(home: Path, point: str) -> None:
    ledger = home / "ledger"
    program = shell(f"echo $ROOST_JOB >> {ledger}; exit 4")
    for turn in range(12):
        job = f"job-{turn}"
        known = {run_id(job): assigned(launching(job, program))}

        assert apart(partial(serve, home, known), f"{point}:1") == KILLED
        with world(home, alive=known) as here:
            ended = here.until(Ended, run_id(job))

        assert ended.exits == (WorkerExit("worker", 0, 4, None),)
    assert ledger.read_text().split() == [f"job-{turn}" for turn in range(12)]


@pytest.mark.parametrize("point", ["adopt.before", "adopt.after"])
def test_a_server_killed_while_it_adopts_loses_nothing(home: Path, point: str) -> None:
    with world(home) as here:
        run = here.launch("job", shell(FOREVER))
        here.until(Started, run)
    pid = worker_pid(home, "job")
    known = {run: assigned()}

    assert apart(partial(serve, home, known), f"{point}:1") == KILLED
    with world(home, alive=known) as here:
        here.until(Started, run)
        assert worker_pid(home, "job") == pid
        assert alive(pid)
        here.end(run)


@pytest.mark.parametrize(
    ("point", "cause"),
    [
        ("shim.before-start-record", "lost"),
        ("shim.after-start-record", "lost"),
        ("shim.after-spawn", "lost"),
        ("shim.before-exit-record", "lost"),
        ("shim.after-exit-record", "exit"),
    ],
)
def test_a_shim_killed_anywhere_leaves_nothing_but_an_end(
    home: Path, point: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOST_FAILPOINT", point)
    with world(home) as here:
        run = here.launch("job", shell("sleep 0.05 & wait"))
        ended = here.until(Ended, run)
        assert left_of(home) == []
        here.launch("job", shell("exit 0"))
        again = here.until(Ended, run)

    assert ended.cause == again.cause == cause


def test_gangs_are_all_or_nothing(home: Path) -> None:
    spec = JobSpec(roles=(Role("ps", 1, Resources(gpus=0)),))
    with world(home) as here:
        where = Allocation((Part(here.node, (0, 1), 1000, 2), Part(here.node, (), 1000, 1, "ps")))
        tasks = {"worker": Task(script=FOREVER), "ps": Task(command=("/no/such/program",))}
        run = here.launch("job", Program(tasks), where, spec)
        ended = here.until(Ended, run)

    assert (ended.cause, ended.exits) == ("never-started", ())
    assert ended.detail == "ps-0: cannot run /no/such/program: No such file or directory"
    assert left_of(home) == []


def test_one_failure_ends_a_gang_and_comes_first(home: Path) -> None:
    script = 'trap "exit 9" TERM; [ "$RANK" = 1 ] && exit 7; sleep 600 & wait'
    with world(home) as here:
        run = here.launch("job", shell(script), here.place(0, 1, workers=2))
        ended = here.until(Ended, run)

    assert ended.exits[0] == WorkerExit("worker", 1, 7, None)
    assert {one.index for one in ended.exits} == {0, 1}
    assert (ended.cause, ended.detail) == ("exit", "worker-1 exited with 7")


def test_other_roles_end_with_the_main_workers(home: Path) -> None:
    spec = JobSpec(roles=(Role("ps", 1, Resources(gpus=0)),))
    with world(home) as here:
        where = Allocation((Part(here.node, (0,)), Part(here.node, (), 1000, 1, "ps")))
        tasks = {"worker": Task(script="exit 0"), "ps": Task(script=FOREVER)}
        ended_run = here.launch("job", Program(tasks, grace_s=5), where, spec)
        ended = here.until(Ended, ended_run)
        assert here.engine.workers(ended_run) == ("worker-0", "ps-0")

    assert ended.exits == (
        WorkerExit("worker", 0, 0, None),
        WorkerExit("ps", 0, None, signal.SIGTERM),
    )
    assert ended.cause == "exit"


def test_a_time_limit_ends_a_run(home: Path) -> None:
    with world(home) as here:
        run = here.launch("job", shell(FOREVER, max_duration_s=0.2))
        ended = here.until(Ended, run)

    assert (ended.cause, ended.detail) == ("timeout", "ran longer than 0.2 s")


def test_setup_runs_once_and_its_failure_ends_the_run(home: Path) -> None:
    with world(home) as here:
        good = here.launch("good", shell("cat made", setup="echo ready > made; echo setting up"))
        assert here.until(Ended, good).exits == (WorkerExit("worker", 0, 0, None),)
        assert here.log(good) == "setting up\nready\n"

        bad = here.launch("bad", shell("echo never", setup="false; echo not reached"))
        ended = here.until(Ended, bad)
        assert here.log(bad) == ""

    assert ended.exits == (WorkerExit("setup", 0, 1, None),)
    assert (ended.cause, ended.detail) == ("exit", "setup failed")


def test_a_git_repository_is_checked_out(home: Path) -> None:
    source = home / "source"
    git = ["git", "-C", str(source), "-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run(["git", "init", "-q", "-b", "main", str(source)], check=True)  # noqa: S603, S607
    (source / "train.sh").write_text("echo trained")
    subprocess.run([*git, "add", "."], check=True)  # noqa: S603
    subprocess.run([*git, "commit", "-qm", "one"], check=True)  # noqa: S603
    with world(home) as here:
        run = here.launch("job", shell("bash train.sh", git=(f"file://{source}", "main")))
        ended = here.until(Ended, run)
        assert (ended.exits, here.log(run)) == ((WorkerExit("worker", 0, 0, None),), "trained\n")

        lost = here.launch("lost", shell("true", git=(f"file://{source}", "no-such-ref")))
        assert here.until(Ended, lost).detail == "git failed"


COUNTER = """
import os, time
path = os.path.join(os.environ["HOME"], "beat")
while True:
    with open(path, "w") as file:
        file.write(str(time.monotonic()))
    time.sleep(0.002)
"""


def test_freezing_stops_everything_and_thawing_moves_it(home: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    program = shell(f"{PYTHON} -c '{COUNTER}' & wait")
    with world(home, len(cores)) as here:
        run = here.launch("job", program, here.place(0))
        here.until(Started, run)
        await_file(home / "beat")
        here.order(Suspend(run, "test"), program)
        assert here.until(Suspended, run).done_s == math.inf, "all its work is kept"
        tree = descendants(shim_pid(home, "job"))
        assert [process.state for process in tree] == ["T", "T"]
    with world(home, len(cores), {run: assigned(parked=True)}) as here:
        here.until(Suspended, run)
        (home / "beat").unlink()
        here.order(Resume(run, here.place(len(cores) - 1)), program)
        here.until(Started, run)
        await_file(home / "beat")
        tree = descendants(shim_pid(home, "job"))
        assert [os.sched_getaffinity(process.pid) for process in tree] == [{cores[-1]}] * 2
        here.order(Suspend(run, "test"), program)
        here.until(Suspended, run)
        ended = here.end(run)

    assert ended.cause == "stopped"
    assert left_of(home) == []


CHECKPOINTING = """
steps="$ROOST_CHECKPOINT_DIR/steps"
echo "generation $ROOST_GENERATION of $WORLD_SIZE from $(cat "$steps" 2>/dev/null || echo 0)"
trap 'echo $ROOST_GENERATION > "$steps"; exit 0' TERM
touch "$ROOST_CHECKPOINT_DIR/up-$ROOST_GENERATION-$RANK"
sleep 600 & wait
"""


def test_a_job_that_cannot_freeze_stops_and_starts_again(home: Path) -> None:
    program = shell(CHECKPOINTING, suspend="stop")
    up = home / "runs/job/checkpoints/up-1-0"
    with world(home) as here:
        run = here.launch("job", program)
        here.until(Started, run)
        await_present(up)
        here.order(Suspend(run, "test"), program)
        here.until(Suspended, run)
        assert left_of(home) == []
    with world(home, alive={run: assigned(parked=True)}) as here:
        here.until(Suspended, run)
        here.order(Resume(run, here.place(1)), program)
        here.until(Started, run)
        here.follow(run, "generation 2 of 1 from 1")
        here.order(Suspend(run, "test"), program)
        here.until(Suspended, run)
        assert here.end(run).cause == "stopped"


def test_resizing_starts_a_new_generation(home: Path) -> None:
    program = shell(CHECKPOINTING)
    with world(home) as here:
        run = here.launch("job", program, spec=JobSpec(workers=Range(1, 2)))
        here.until(Started, run)
        await_present(home / "runs/job/checkpoints/up-1-0")
        wider = here.place(0, 1, workers=2)
        here.order(Resize(run, wider), program)
        here.until(Resized, run)
        here.follow(run, "generation 2 of 2 from 1", "worker-1")
        assert here.log(run).startswith("generation 1 of 1 from 0\n")
        here.order(Resize(run, wider), program)
        here.until(Resized, run)
        assert here.state(run).generation == 2
        here.order(Migrate(run, here.place(1)), program)
        here.until(Resized, run)
        assert here.state(run).generation == 3
        here.order(Resize(run, wider), Program({"worker": Task(command=("/no/such",))}))
        assert here.until(Ended, run).cause == "never-started"


def test_a_resize_cut_short_by_a_kill_is_taken_up_again(home: Path) -> None:
    program = shell(CHECKPOINTING)
    with world(home) as here:
        run = here.launch("job", program)
        here.until(Started, run)
        await_present(home / "runs/job/checkpoints/up-1-0")
        wider = here.place(0, 1, workers=2)
    known = {run: assigned(RunOrder(Resize(run, wider), program))}

    assert apart(partial(serve, home, known), "effect.before-fork:1") == KILLED
    assert apart(partial(serve, home, known), "effect.after-fork:1") == KILLED
    with world(home, alive=known) as here:
        here.until(Resized, run)
        here.follow(run, "generation 2 of 2 from 1")
        assert here.end(run).cause == "stopped"


def test_a_job_that_ends_by_itself_is_not_resized(home: Path) -> None:
    with world(home) as here:
        run = here.launch("job", shell(GATED + "exit 5"))
        here.until(Started, run)
        (home / "go").touch()
        await_end(home, run)
        here.order(Resize(run, here.place(0, 1, workers=2)), shell(FOREVER))
        ended = here.until(Ended, run)

    assert (ended.cause, ended.exits) == ("exit", (WorkerExit("worker", 0, 5, None),))


def test_a_stop_ends_a_resize(home: Path) -> None:
    program = shell("trap 'sleep 0.3; exit 0' TERM; echo up; sleep 600 & wait")
    with world(home) as here:
        run = here.launch("job", program)
        here.follow(run, "up")
        here.order(Resize(run, here.place(0, 1, workers=2)), program)
        assert here.end(run).cause == "stopped"
        assert here.state(run).generation == 1


ENVIRONMENT = """
import json, os, time
name = os.environ["ROOST_ROLE"] + os.environ["RANK"]
with open(name, "w") as out:
    json.dump({**os.environ, "cwd": os.getcwd(), "cpus": sorted(os.sched_getaffinity(0)),
               "hosts": open(os.environ["ROOST_HOSTFILE"]).read()}, out)
os.replace(name, os.environ["ROOST_RESULT"] + name)  # whole, or not there: the others count files
folder, prefix = os.path.split(os.environ["ROOST_RESULT"])
while sum(one.startswith(prefix) for one in os.listdir(folder)) < 3:
    time.sleep(0.01)  # the other roles are stopped when the workers are done
"""


def test_the_environment_is_what_frameworks_expect(home: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    spec = JobSpec(roles=(Role("ps", 1, Resources(gpus=0)),))
    task = Task(command=(PYTHON, "-I", "-S", "-c", ENVIRONMENT))
    program = Program({"worker": task, "ps": task}, env={"OMP_NUM_THREADS": "3", "MINE": "yes"})
    with world(home, slots=len(cores)) as here:
        last = len(cores) - 1
        parts = (Part(here.node, (0, last), 1000, 2), Part(here.node, (), 1000, 1, "ps"))
        run = here.launch("job", program, Allocation(parts), spec, user="ada")
        assert here.until(Ended, run).exits[0].code == 0
    io = home / "runs/job/1/io"
    found = {path.name: json.loads(path.read_text()) for path in io.glob("result.pkl*")}
    first, second, ps = (found[f"result.pkl{who}"] for who in ("worker0", "worker1", "ps0"))

    assert (second["RANK"], second["WORLD_SIZE"], second["LOCAL_RANK"]) == ("1", "2", "0")
    assert (first["cpus"], second["cpus"]) == ([cores[0]], [cores[last]])
    assert first["MASTER_PORT"] == second["MASTER_PORT"]
    config = json.loads(ps["TF_CONFIG"])
    assert {role: len(places) for role, places in config["cluster"].items()} == {
        "worker": 2,
        "ps": 1,
    }
    assert config["task"] == {"type": "ps", "index": 0}
    assert (first["OMP_NUM_THREADS"], first["MINE"], first["CUDA_VISIBLE_DEVICES"]) == (
        "3",
        "yes",
        "",
    )
    assert first["hosts"] == "localhost slots=2\n"
    assert first["PAI_USER_NAME"] == "ada"
    assert first["cwd"] == str(home / "runs/job/1/work")
    assert "ROOST_API_TOKEN" not in first


def test_secrets_are_in_no_file_and_on_no_command_line(home: Path) -> None:
    canary = "canary-7f3a9e"
    program = shell('[ -n "$KEY" ] && echo has it; sleep 600 & wait', secret_names=("KEY",))
    with world(home) as here:
        run = here.launch("job", program, secrets={"KEY": canary})
        here.follow(run, "has it")
        commands = command_lines()
        here.order(Resize(run, here.place(1)), program)
        ended = here.until(Ended, run)
        detail = ended.detail

    assert detail == "secret KEY has no value here"
    assert any(b"echo has it" in line for line in commands)
    assert not any(canary.encode() in line for line in commands)
    files = [path for path in home.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if canary.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"env": {"ROOST_TOKEN": "x"}}, "the environment may not set ROOST_TOKEN"),
        ({"env": {"A=B": "x"}}, "cannot be the name of a variable"),
        ({"workdir": "relative"}, "workdir must be an absolute folder"),
        ({"workdir": "/no/such"}, "worker-0: cannot enter /no/such: No such file"),
        ({"stop_signal": "SIGNONE"}, "unknown stop signal 'SIGNONE'"),
        ({"git": ("--upload-pack=x", "")}, "cannot check out"),
    ],
)
def test_what_cannot_be_is_never_started(home: Path, change: dict[str, Any], why: str) -> None:
    with world(home) as here:
        run = here.launch("job", shell(FOREVER, **change))
        ended = here.until(Ended, run)

    assert ended.cause == "never-started"
    assert why in ended.detail


def test_what_a_job_says_of_itself_is_passed_on(home: Path) -> None:
    script = """
    echo '{"done": 0.25, "step": 3, "loss": 1.5}' > $ROOST_PROGRESS
    echo 'not json' > $ROOST_PROGRESS
    echo '{"done": 7, "saved": 0.2, "step": true}' > $ROOST_PROGRESS
    exec sleep 600
    """
    with world(home) as here:
        run = here.launch("job", shell(script))
        told = here.until(ProgressReport, run)
        while told.saved is None:
            told = here.until(ProgressReport, run)
    with world(home, alive={run: assigned()}) as here:
        again = here.until(ProgressReport, run)
        here.end(run)

    assert (told.done, told.saved, told.step, told.loss) == (0.25, 0.2, 3, 1.5)
    assert (again.done, again.saved) == (0.25, 0.2)


def test_a_function_goes_in_and_its_result_comes_out(home: Path) -> None:
    script = """
import os, pickle
with open(os.environ["ROOST_PAYLOAD"], "rb") as file:
    given = pickle.load(file)
with open(os.environ["ROOST_RESULT"], "wb") as file:
    pickle.dump(given * 2, file)
"""
    with world(home) as here:
        assert here.engine.result(run_id("job")) is None
        run = here.launch("job", python(script), payload=pickle.dumps(21))
        here.until(Ended, run)
        file = here.engine.result(run)
        assert file is not None
        with file:
            result = file.read(0, file.size())
        assert (home / "runs/job/1/payload.pkl").stat().st_mode & 0o777 == 0o400

    assert pickle.loads(result) == 42  # noqa: S301 - our own


def test_memory_is_limited(home: Path) -> None:
    script = "b = bytearray(400 << 20); print('had it')"
    with world(home) as here:
        spec = JobSpec(resources=Resources(memory_mib=200))
        run = here.launch("job", python(script), spec=spec)
        ended = here.until(Ended, run)
        log = here.log(run)

    assert ended.exits[0].code == 1 or ended.exits[0].oom
    assert "had it" not in log


def test_use_is_counted_and_deleted_jobs_are_forgotten(home: Path) -> None:
    with world(home) as here:
        run = here.launch("job", shell("sleep 600 & sleep 600 & wait"))
        here.until(Started, run)
        while (used := here.engine.usage()[run]).processes < 3:
            pass
        assert used.rss_bytes > 0
        here.end(run)
        here.engine.forget(run.job)
        assert here.engine.workers(run) == ()
        with pytest.raises(NotFound):
            here.engine.logs(run)
        with pytest.raises(InvalidSpec):
            here.engine.logs(run_id("../etc"))
    assert list((home / "runs").iterdir()) == []


def test_a_paused_machine_loses_nothing(home: Path) -> None:
    with world(home) as here:
        run = here.launch("job", shell(FOREVER, max_duration_s=600))
        here.until(Started, run)
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in (shim_pid(home, "job"), worker_pid(home, "job")):
                os.kill(pid, number)
        here.order(Stop(run, "test"))
        ended = here.until(Ended, run)

    assert ended.cause == "stopped"


def test_a_shim_that_stands_still_can_be_ended(home: Path) -> None:
    with world(home) as here:
        run = here.launch("job", shell(FOREVER))
        here.until(Started, run)
        os.kill(shim_pid(home, "job"), signal.SIGSTOP)
        here.order(Stop(run, "test"))
        assert here.until(Ended, run).cause == "stopped"
    assert left_of(home) == []


def test_a_hundred_runs_are_adopted_quickly(home: Path) -> None:
    count = 100
    program = Program({"worker": Task(command=("/bin/sleep", "600"))}, grace_s=5)
    with world(home) as here:
        runs = [here.launch(f"job-{number}", program) for number in range(count)]
        for _ in runs:
            here.until(Started)
    here = World(home)
    begun = time.process_time()
    here.start({run: assigned() for run in runs})
    took = time.process_time() - begun
    adopted = {report.run for report in here.reports if isinstance(report, Started)}
    for run in runs:
        here.order(Stop(run, "test"))
    for _ in runs:
        here.until(Ended)
    here.close()

    assert adopted == set(runs)
    assert took < 2.0  # of CPU time; 0.1 s when this was written


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs under other accounts")
def test_as_root_a_job_runs_under_its_account(home: Path) -> None:
    script = "id -u; touch mine; cat $ROOST_HOSTFILE; echo '{\"done\": 1}' > $ROOST_PROGRESS"
    with world(home) as here:
        run = here.launch("job", shell(script, workdir=""), unix="nobody")
        ended = here.until(Ended, run)
        assert ended.exits == (WorkerExit("worker", 0, 0, None),)
        assert here.log(run) == "65534\nlocalhost slots=1\n"
        unknown = here.launch("other", shell("true"), unix="no-such-account")
        detail = here.until(Ended, unknown).detail
        home.chmod(0o700)
        shut = here.launch("shut", shell("true"), unix="nobody")
        closed = here.until(Ended, shut).detail
    folder = home / "runs/job/1"
    owners = {name: (folder / name).stat().st_uid for name in ("work/mine", "logs", "exit.json")}

    assert owners == {"work/mine": 65534, "logs": 0, "exit.json": 0}
    assert detail == "this machine has no account 'no-such-account'"
    assert closed.startswith("'nobody' cannot enter")


def test_a_full_disk_costs_output_and_nothing_else(home: Path) -> None:
    place, many = home / "small", 3_000_000
    place.mkdir()
    script = f"""
import os, sys, time
def await_file(name):
    while not os.path.exists("{home}/" + name): time.sleep(0.005)
await_file("full")
os.write(1, b"x" * {many})
open("{home}/wrote", "w").close()
await_file("room")
os.write(1, b"the end")
sys.exit(7)
"""

    def story() -> None:
        here = World(place)
        here.start()
        run = here.launch("job", python(script))
        here.until(Started, run)
        while fill(place / "filler"):
            pass
        (home / "full").touch()
        await_present(home / "wrote")
        late = here.launch("late", shell("true"))
        assert "the server's disk is full" in here.until(Delayed, late).why
        assert here.until(LaunchTrouble).full
        assert here.end(late).cause == "stopped"  # nothing of it was ever begun
        (place / "filler").unlink()
        (home / "room").touch()
        ended = here.until(Ended, run)
        assert ended.exits == (WorkerExit("worker", 0, 7, None),), ended
        text = here.log(run)
        lost = sum(int(number) for number in re.findall(r"roost: (\d+) bytes are lost", text))
        assert lost > 0
        assert lost + text.count("x") == many
        assert text.endswith("the end")
        here.close()

    assert apart(story, tmpfs=(place, "2m")) == 0


def test_the_end_is_written_on_a_full_disk(home: Path) -> None:
    place = home / "small"
    place.mkdir()

    def story() -> None:
        with world(place) as here:
            run = here.launch("job", shell("head -c 3000000 /dev/zero; exit 7"))
            ended = here.until(Ended, run)
        assert ended.exits == (WorkerExit("worker", 0, 7, None),), ended

    assert apart(story, tmpfs=(place, "2m")) == 0


COUNT = """
import itertools, os, time
for number in itertools.count():
    time.process_time()
    if number % 20000 == 0:
        print(time.process_time(), flush=True)
"""


def test_two_runs_share_a_slot_by_turns_and_one_rests(home: Path) -> None:
    half = JobSpec(resources=Resources(share_milli=500))
    with world(home, slots=1) as here:
        where = Allocation((Part(here.node, (0,), 500),))
        runs = [here.launch(name, python(COUNT), where, half) for name in ("a", "b")]
        for run in runs:
            here.follow(run, "\n")
        resting, busy = runs
        here.order(Suspend(resting, "test"), python(COUNT))
        here.until(Suspended, resting)
        before, seen = here.log(resting), len(here.log(busy))
        while len(here.log(busy)) < 2 * seen + 100:
            here.loop.run_until_complete(asyncio.sleep(0.02))
        assert here.log(resting) == before
    with world(home, slots=1, alive={resting: assigned(parked=True), busy: assigned()}) as here:
        here.until(Suspended, resting)
        here.order(Resume(resting, where), python(COUNT))
        here.until(Started, resting)
        while len(here.log(resting)) < len(before) + 40:
            here.loop.run_until_complete(asyncio.sleep(0.02))
        for run in runs:
            assert here.end(run).cause == "stopped"


def fill(path: Path) -> bool:
    try:
        with path.open("ab", buffering=0) as file:
            return file.write(bytes(1 << 16)) > 0
    except OSError:
        return False


def await_present(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.002)


def serve(home: Path, known: dict[RunId, Assigned]) -> None:
    """Be a server until something happens, or until it is killed."""
    here = World(home)
    here.start(known)
    here.until(Ended)


def launching(job: str, program: Program) -> RunOrder:
    return RunOrder(Launch(run_id(job), JobSpec(), Allocation((Part(node_name(), (0,)),))), program)


def command_lines() -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes())
    return found


def shim_pid(home: Path, job: str) -> int:
    return int(str(start_record(home, job)["pid"]))


def worker_pid(home: Path, job: str) -> int:
    return int(start_record(home, job)["workers"]["worker-0"][0])


def start_record(home: Path, job: str) -> dict[str, Any]:
    with (home / "runs" / job / "1/start.json").open("rb") as file:
        found = slot_file.read(file.fileno())
    assert found is not None
    return found
