"""Jobs that do not want to end, hide, flood or trick: they are gone in time and harm nobody."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.local_world import (
    PYTHON,
    alive,
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

from roost.core.actions import Resize
from roost.core.events import Resized, Started
from roost.core.spec import JobSpec, Range
from roost.engines import Ended
from roost.engines.local import launcher, limits, processes
from roost.engines.local.limits import ProcessLimits
from roost.engines.local.run_record import RunRecord
from roost.engines.local.shim import slot_file
from roost.engines.local.shim.process_tree import look
from roost.errors import NotFound

GRACE_S = 0.2
#: Less than a tree lives by itself; a fraction of a second on a quiet machine.
WITHIN_S = GRACE_S + 30.0

DOUBLE_FORK = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(os.environ["HOME"] + "/up", "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
time.sleep(600)
"""
IGNORES_TERM = """
import os, signal, time
for number in range(1, 32):
    if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
open(os.environ["HOME"] + "/up", "w").write(str(os.getpid()))
while True: time.sleep(600)
"""
FORKS_WHILE_DYING = """
import os, signal, time
def again(*_):
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
signal.signal(signal.SIGTERM, again)
open(os.environ["HOME"] + "/up", "w").write(str(os.getpid()))
while True:
    if os.fork() == 0:
        time.sleep(0.02)
        os._exit(0)
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        pass
    time.sleep(0.002)
"""
#: A new program each, so that nothing of the old environment is left in memory.
CLEARS_ENVIRONMENT = f"""
import os
home = os.environ["HOME"]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        code = "import os, time; open('" + home + "/up', 'w').write(str(os.getpid()));"
        code += "time.sleep(600)"
        os.execve("{PYTHON}", ["{PYTHON}", "-I", "-S", "-c", code], {{}})
    os._exit(0)
os.execve("{PYTHON}", ["{PYTHON}", "-I", "-S", "-c", "import time; time.sleep(600)"], {{}})
"""
HOSTILE = {
    "double-fork": DOUBLE_FORK,
    "ignores-term": IGNORES_TERM,
    "forks-while-dying": FORKS_WHILE_DYING,
    "clears-environment": CLEARS_ENVIRONMENT,
}


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="engine-"))
    monkeypatch.setenv("HOME", str(place))
    yield place
    clear(place)
    shutil.rmtree(place)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_stopped_tree_is_gone_in_time(home: Path, name: str) -> None:
    with world(home) as here:
        run = here.launch("job", python(HOSTILE[name], grace_s=GRACE_S))
        here.until(Started, run)
        pid = int(await_file(home / "up"))
        begun = time.monotonic()
        ended = here.end(run)
        took = time.monotonic() - begun

    assert ended.cause == "stopped"
    assert took < WITHIN_S
    assert not alive(pid)
    assert left_of(home) == []


@pytest.mark.parametrize("kept_by", ["cgroup", "marks"])
@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_outlives_a_killed_shim(
    home: Path, name: str, kept_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kept_by == "marks":
        monkeypatch.setattr(limits, "find", lambda _: ProcessLimits(None))
    with world(home) as here:
        run = here.launch("job", python(HOSTILE[name], grace_s=GRACE_S))
        here.until(Started, run)
        pid = int(await_file(home / "up"))
        os.kill(shim_pid(home), signal.SIGKILL)
        ended = here.until(Ended, run)

    assert (ended.cause, ended.detail) == ("lost", "its shim was killed")
    assert not alive(pid)
    assert left_of(home) == []


def test_workers_with_limits_sit_in_cgroups_of_their_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = limits.find(home)
    if found.base is None:
        pytest.skip("no cgroup can be made here")
    # As if there were controllers: their files apart, all is as with them.
    monkeypatch.setattr(limits, "find", lambda _: ProcessLimits(found.base, frozenset({"none"})))
    with world(home) as here:
        run = here.launch("job", python(FORKS_WHILE_DYING, grace_s=GRACE_S))
        here.until(Started, run)
        pid = int(await_file(home / "up"))
        groups = Path(f"/proc/{pid}/cgroup").read_text()
        ended = here.end(run)

    assert f"{found.base.name}/job.1/worker-0\n" in groups
    assert ended.cause == "stopped"
    assert left_of(home) == []
    assert not found.base.exists()


def test_a_job_that_leaves_children_behind_ends_with_them(home: Path) -> None:
    with world(home) as here:
        run = here.launch("job", shell("setsid sleep 600 & echo $! > $HOME/up; exit 0"))
        ended = here.until(Ended, run)
        pid = int((home / "up").read_text())

    assert ended.exits[0].code == 0
    assert not alive(pid)


def test_endless_output_is_capped_and_its_end_is_kept(home: Path) -> None:
    limit = 1 << 20
    script = f"yes roost & PID=$!; until [ -e {home}/enough ]; do sleep 0.01; done; kill $PID; "
    with world(home) as here:
        run = here.launch("job", shell(script + "wait || :; echo the end", log_limit_bytes=limit))
        here.until(Started, run)
        log = home / "runs/job/1/logs/worker-0.log"
        while log.stat().st_size < limit:
            time.sleep(0.005)
        shim = shim_pid(home)
        time.sleep(0.3)  # let it flood
        memory = int(Path(f"/proc/{shim}/statm").read_text().split()[1]) * 4096
        (home / "enough").touch()
        ended = here.until(Ended, run)
        text = here.log(run)

    assert ended.exits[0].code == 0
    assert memory < 50 << 20
    assert len(text) < limit + (64 << 10) + 500
    assert text.count("[roost: the limit of") == 1
    assert "bytes are left out here]" in text
    assert text.endswith("roost\nthe end\n")


@pytest.mark.parametrize("trick", ["ln -s /etc/passwd", "mkfifo", "mkdir", "rm -f"])
def test_a_replaced_log_is_not_read(home: Path, trick: str) -> None:
    script = f'cd "$(dirname "$ROOST_HOSTFILE")/logs"; rm worker-0.log; {trick} worker-0.log; '
    with world(home) as here:
        run = here.launch("job", shell(script + "exit 3"))
        ended = here.until(Ended, run)
        with pytest.raises(NotFound, match="no worker 'worker-0' with a log"):
            here.engine.logs(run)
        for name in ("../lock", "/etc/passwd", "worker-0.log", "worker-0\0", ""):
            with pytest.raises(NotFound):
                here.engine.logs(run, name)

    assert ended.exits[0].code == 3


@pytest.mark.parametrize(
    "trick",
    [
        "ln -s /etc/passwd $ROOST_RESULT",
        "ln $HOME/canary $ROOST_RESULT",
        "mkfifo $ROOST_RESULT",
        "mkdir $ROOST_RESULT",
        "mv $(dirname $ROOST_RESULT) away; ln -s $HOME $(dirname $ROOST_RESULT)",
    ],
)
def test_a_result_that_is_none_is_not_read(home: Path, trick: str) -> None:
    for name in ("canary", "result.pkl"):
        (home / name).write_text("secret")
    with world(home) as here:
        run = here.launch("job", shell(trick))
        here.until(Ended, run)

        assert here.engine.result(run) is None


def test_a_broken_progress_pipe_harms_nobody(home: Path) -> None:
    script = """
    head -c 100000 /dev/zero > $ROOST_PROGRESS
    echo '{"done": 1e400, "step": 99999999999999999999999, "loss": "much"}' > $ROOST_PROGRESS
    python3 -c 'print("[" * 100000)' > $ROOST_PROGRESS
    rm $ROOST_PROGRESS; ln -s /etc/passwd $ROOST_PROGRESS; exit 3
    """
    with world(home) as here:
        run = here.launch("job", shell(script))

        assert here.until(Ended, run).exits[0].code == 3


FLOOD = """
import itertools, json, os
pipe = os.open(os.environ["ROOST_PROGRESS"], os.O_WRONLY)
deep = "[" * 900
for number in itertools.count():
    for said in ({"ready": str(number)}, {"elastic": True, "member": str(number)},
                 {"joined": number, "member": "0", "pause_s": 1e308, "world": 10**300},
                 {"saved_for": 10**50, "offloaded": number, "lost": ["0"] * 50}):
        os.write(pipe, (json.dumps(said) + "\\n").encode())
    os.write(pipe, (f'{{"elastic": {deep}\\n').encode())
    if number == 500:
        print("flooded", flush=True)
"""


def test_a_flood_about_members_harms_nobody(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its own words get lost in its flood: it may seem never to get ready.
    monkeypatch.setattr(launcher, "PATIENCE", {"ready_s": 0.5, "join_s": 0.5})
    with world(home) as here:
        run = here.launch("job", python(FLOOD), spec=JobSpec(workers=Range(1, 2)))
        here.follow(run, "flooded")
        before = _memory_kib(shim_pid(home))
        here.order(Resize(run, here.place(0, 1, workers=2)), python(FLOOD))
        here.until(Resized, run)  # by a new generation, or a lie: it is up with two workers
        assert len(here.engine.workers(run)) == 2
        assert _memory_kib(shim_pid(home)) < before + 4096
        assert here.end(run).cause == "stopped"


def _memory_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def test_a_reused_number_is_left_alone(home: Path) -> None:
    """What was the shim's number now belongs to a bystander."""
    with world(home) as here:
        run = here.launch("job", shell("exec sleep 600"))
        here.until(Started, run)
    os.kill(shim_pid(home), signal.SIGKILL)
    await_end(home, run)
    bystander = subprocess.Popen(["/bin/sleep", "600"])
    try:
        path = home / "runs/job/1/start.json"
        with path.open("r+b") as file:
            start = slot_file.read(file.fileno())
            assert start is not None
            process = look(bystander.pid)
            assert process is not None
            slot_file.write(file.fileno(), {**start, "pid": bystander.pid})
        with world(home, alive={run: assigned()}) as here:
            ended = here.until(Ended, run)

        assert ended.cause == "lost"
        assert processes.hold(bystander.pid, process.ticks - 1, processes.boot_id()) is None
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_number_of_another_boot_is_left_alone() -> None:
    me = look(os.getpid())
    assert me is not None

    assert processes.hold(me.pid, me.ticks, "another boot") is None
    held = processes.hold(me.pid, me.ticks, processes.boot_id())
    assert held is not None
    assert f"Pid:\t{me.pid}\n" in Path(f"/proc/self/fdinfo/{held}").read_text()
    os.close(held)


def test_a_torn_state_is_not_believed(home: Path) -> None:
    folder = home / "runs/job/1"
    folder.mkdir(parents=True)
    fd = os.open(folder, os.O_RDONLY)
    file = slot_file.create("run.json", fd)
    slot_file.write(file, RunRecord(run_id("job"), "ab").encode())
    os.pwrite(file, b"?", 40 + slot_file.PAGE)
    os.close(file)
    os.close(fd)
    with world(home) as here:
        run = here.launch("job", shell("exit 6"))

        assert here.until(Ended, run).exits[0].code == 6


def shim_pid(home: Path) -> int:
    with (home / "runs/job/1/start.json").open("rb") as file:
        start = slot_file.read(file.fileno())
    assert start is not None
    return int(start["pid"])
