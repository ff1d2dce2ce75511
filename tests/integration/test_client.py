"""The SDK and the command line against a real server: real processes, a real restart."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.pages import commands, page, runs
from tests.unit.cli.told import roost as run

import roost
from roost.client import AsyncClient, Client, JobView, uploads
from roost.client.conversations import RestReply, RestRequest, Steps, ask
from roost.client.submissions import prepare
from roost.errors import Conflict, InvalidSpec, NotFound


class Server:
    """``roost up`` in a process of its own, which can be killed and started again."""

    def __init__(self, home: Path) -> None:
        self.home = home
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = ["up", "--home", str(self.home), "--port", str(self.port), "--slots", "4"]
        self.process = subprocess.Popen(  # noqa: S603 - our own
            [sys.executable, "-c", "from roost.cli import main; main()", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if line.startswith("Next:"):
                return
        raise AssertionError("".join(said))

    def end(self, number: signal.Signals) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.send_signal(number)
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("home")
    home.chmod(0o700)
    found = Server(home)
    found.start()
    yield found
    with Client(home=home) as client:
        for view in client.jobs(state=["queued", "starting", "running", "suspended", "resizing"]):
            client.job(view.id).cancel()
            client.job(view.id).wait(60)
    found.end(signal.SIGTERM)


@pytest.fixture(autouse=True)
def here(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROOST_HOME", str(server.home))
    monkeypatch.delenv("ROOST_URL", raising=False)
    monkeypatch.delenv("ROOST_TOKEN", raising=False)
    monkeypatch.chdir(tmp_path)


class Diverged(Exception):
    """An exception of the user's own."""


@roost.job(run_time="5s", retry=0)
def work(numbers: list[int], *, fail: bool = False) -> dict[str, object]:
    sys.stdout.write(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}\n")
    if fail:
        raise Diverged(len(numbers))
    return {"sum": sum(numbers), "rank": os.environ["RANK"], "world": os.environ["WORLD_SIZE"]}


def test_a_function_runs_as_a_job_and_its_result_comes_home() -> None:
    handle = work.submit([1, 2, 3])
    assert handle.result(timeout=60) == {"sum": 6, "rank": "0", "world": "1"}
    assert list(handle.logs()) == ["rank 0 of 1"]
    assert handle.status().state == "succeeded"


def test_every_worker_calls_it_and_rank_0_has_the_result() -> None:
    handle = work.options(workers=2).submit([4])
    assert handle.result(timeout=60) == {"sum": 4, "rank": "0", "world": "2"}
    assert handle.workers() == ["worker-0", "worker-1"]
    assert list(handle.logs(worker="worker-1")) == ["rank 1 of 2"]
    out = run("logs", handle.id, "--all").out
    assert out == "worker-0 | rank 0 of 2\nworker-1 | rank 1 of 2\n"


def test_an_exception_of_the_job_is_raised_here() -> None:
    with pytest.raises(Diverged, match="2"):
        work.submit([1, 2], fail=True).result(timeout=60)


def test_many_at_once_awaited() -> None:
    async def talk() -> list[object]:
        async with AsyncClient() as client:
            handles = [await client.submit(work.bind([n])) for n in range(4)]
            results = await asyncio.gather(*(handle.result(30) for handle in handles))
            return [result["sum"] for result in results]

    assert asyncio.run(talk()) == [0, 1, 2, 3]


COUNTER = "for i in $(seq 1 400); do echo line $i; sleep 0.01; done"


def test_a_follower_and_a_waiter_outlive_kill_9_of_the_server(server: Server) -> None:
    with Client() as client:
        handle = client.submit({"name": "counter", "run": COUNTER, "retry": 0})
        lines: list[str] = []
        ended: list[JobView] = []
        far = threading.Event()

        def follow() -> None:
            for line in handle.logs(follow=True):
                lines.append(line)
                if len(lines) == 20:
                    far.set()

        readers = [
            threading.Thread(target=follow),
            threading.Thread(target=lambda: ended.append(handle.wait())),
        ]
        for reader in readers:
            reader.start()
        assert far.wait(60)
        server.end(signal.SIGKILL)
        server.start()
        for reader in readers:
            reader.join(60)

    assert lines == [f"line {number}" for number in range(1, 401)]
    assert [view.state for view in ended] == ["succeeded"]


def test_watching_sees_a_job_from_beginning_to_end() -> None:
    with Client() as client:
        states: list[str] = []
        begun, over = threading.Event(), threading.Event()
        handle_id: list[str] = []

        def watch() -> None:
            for view in client.watch():
                begun.set()
                if handle_id and view.id == handle_id[0]:
                    states.append(view.state)
                    if view.over:
                        over.set()
                        return

        # Something must be open, or the first snapshot has no job in it.
        other = client.submit(["sleep", "60"])
        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        assert begun.wait(60)
        handle_id.append(client.submit({"name": "seen", "run": "sleep 0.5"}).id)
        assert over.wait(60)
        other.cancel()
    assert states[-1] == "succeeded"
    assert "running" in states


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143)],
)
def test_waiting_on_the_command_line_ends_with_the_status_of_the_job(
    script: str, status: int
) -> None:
    told = run("submit", "--retry", 0, "--wait", "--", "bash", "-c", script)
    assert told.status == status, told


def test_a_cancelled_job_ends_a_waiting_command_with_1() -> None:
    ended: list[int] = []
    command = ["submit", "-n", "stopped", "-y", "--wait", "--", "sleep", "60"]
    process = subprocess.Popen(  # noqa: S603 - our own
        [
            sys.executable,
            "-c",
            "import sys; from roost.cli import main; sys.exit(main())",
            *command,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    job = process.stdout.readline().strip()
    assert run("cancel", job).status == 0
    ended.append(process.wait(60))
    process.stdout.close()
    assert ended == [1]


def test_the_life_of_a_job_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("found\n")
    (tmp_path / "job.yaml").write_text(
        "name: life\nworkers: 1..2\nrun_time: 60s\nrun: |\n  cat data.txt\n  sleep 60\n"
    )
    told = run("submit", "job.yaml")
    job = told.out.strip()
    assert told.err.splitlines()[0].startswith("TARGET")
    with Client() as client:
        lines = client.job(job).logs(follow=True)
        assert next(lines) == "found"
        lines.close()  # type: ignore[attr-defined]
    assert json.loads(run("get", job, "-o", "json").out)["state"] == "running"
    assert job in run("list", "-s", "running").out
    assert run("scale", job, "1").status == 0
    assert run("suspend", job).status == 0
    assert run("resume", job).status == 0
    assert "running" in run("events", job).out
    assert run("explain", job).status == 0
    for what in ("node", "job", "queue"):
        assert run("top", what).status == 0
    assert "cancel it first" in run("delete", job, "-y").err
    assert run("cancel", job).status == 0
    with Client() as client:
        assert client.job(job).wait(60).state == "cancelled"
    assert run("delete", job, "-y").status == 0
    assert "no job" in run("get", job).error


def test_a_waiting_job_says_why_and_what_would_start_it() -> None:
    with Client() as client:
        first = client.submit({"name": "first", "run": "sleep 60", "workers": 3, "run_time": "60s"})
        wide = client.submit({"name": "wide", "run": "true", "workers": 4, "run_time": "5s"})
        lines = run("explain", wide.id).out.splitlines()
        assert lines[0].split()[0] == "no-capacity"
        assert any(line.startswith("  start ") for line in lines)
        assert any(line.startswith("  now if ") for line in lines)
        assert "never" in run("submit", "--gpus", 9, "--dry-run", "--", "true").error
        wide.cancel()
        first.cancel()


SBATCH = "#!/bin/bash\n#SBATCH --job-name=old\n#SBATCH --gpus=1\necho from slurm\n"


def test_the_commands_of_the_page_on_the_command_line_work(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import time\nprint('training', flush=True)\ntime.sleep(60)\n"
    )
    (tmp_path / "train.yaml").write_text("run: echo rate $RATE\n")
    (tmp_path / "train.sbatch").write_text(SBATCH)
    shown = [
        command
        for block in page("docs/cli.md").blocks
        if block.language == "console"
        for command in commands(block)
        if runs(shlex.split(command.text)[1:])
    ]
    assert len(shown) > 30
    for command in shown:
        told = run(*shlex.split(command.text)[1:])
        assert told.status == 0, f"docs/cli.md:{command.line}: {command.text}\n{told}"
        for line in command.shown[:1]:  # the headers of tables; what is below them changes
            assert line.split() in [each.split() for each in (told.out + told.err).splitlines()]


def test_the_snippets_of_the_page_on_the_sdk_run(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in page("docs/sdk.md").blocks:
        if block.language == "python":
            exec(compile(block.text, "docs/sdk.md", "exec"), namespace)  # noqa: S102 - our own
    out = capsys.readouterr().out.splitlines()
    assert "0.0625" in out
    assert "no job 'nobody'" in out


def test_others_see_nothing_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    # As root, jobs run under Unix accounts; the interpreter here is root's own.
    account = ["--unix", "root"] if os.geteuid() == 0 else []
    assert run("users", "add", "bob", *account).status == 0
    secret = run("tokens", "add", "--user", "bob", "--expires", "1h").out.strip()
    mine = work.submit([1])
    mine.wait(60)
    with Client(token=secret) as other:
        assert other.whoami()["user"] == "bob"
        assert list(other.jobs()) == []
        with pytest.raises(NotFound):
            other.job(mine.id)
        theirs = other.submit(work.bind([5]))
        assert theirs.result(30)["sum"] == 5
    with Client() as admin, pytest.raises(Conflict, match="bob's"):
        admin.job(theirs.id).result()

    assert run("queues", "set", "private", "--quota", 1, "--submitters", "bob").status == 0
    monkeypatch.setenv("ROOST_TOKEN", secret)
    with Client() as client:
        monkeypatch.setenv("ROOST_URL", client.url)
    assert "private" in run("queues").out
    assert run("users").status == 2
    monkeypatch.delenv("ROOST_TOKEN")
    monkeypatch.delenv("ROOST_URL")
    token = json.loads(run("tokens", "list", "--user", "bob", "-o", "json").out)[0]["id"]
    assert run("tokens", "revoke", token).status == 0
    monkeypatch.setenv("ROOST_TOKEN", secret)
    assert run("whoami").status == 2


MESS = """
mkdir -p out/deep; echo hello > out/a.txt; seq 200000 > out/deep/big.txt; chmod +x out/a.txt
ln -s /etc/passwd stolen; ln -s ../a.txt out/deep/same; mkfifo pipe
echo 7 > $ROOST_CHECKPOINT_DIR/step
"""


def test_files_of_a_job_come_back(tmp_path: Path) -> None:
    with Client() as client:
        job = client.submit({"name": "files", "run": MESS, "workdir": str(tmp_path), "gpus": 0})
        assert job.wait(60).state == "succeeded"
        listed = {view.path: view for view in job.files(deep=True)}
        assert listed["work/out/deep/big.txt"].size_bytes == 1_288_895
        assert {"checkpoints/step", "logs/worker-0.log", "work/stolen"} <= listed.keys()
        assert "work/pipe" not in listed

        # A part that was left by an earlier try is gone on with, not fetched again.
        target = tmp_path / "back"
        (target / "deep").mkdir(parents=True)
        mark = hashlib.sha256(listed["work/out/deep/big.txt"].version.encode()).hexdigest()[:16]
        (target / "deep" / f".big.txt.{mark}.part").write_text("X" * 1000)
        done = job.download("out", target)
        assert (done.files, done.unchanged, done.left_out) == (2, 0, ())
        big = (target / "deep" / "big.txt").read_text()
        assert big[:1000] == "X" * 1000
        assert big[1000:] == "".join(f"{n}\n" for n in range(1, 200_001))[1000:]
        assert (target / "a.txt").stat().st_mode & 0o100
        assert (target / "deep" / "same").readlink() == Path("../a.txt")
        assert sorted(path.name for path in (target / "deep").iterdir()) == ["big.txt", "same"]
        assert job.download("out", target).unchanged == 2
        assert job.download("", tmp_path / "all").left_out == ("work/stolen",)
        with pytest.raises(NotFound):
            job.download("stolen/x", tmp_path)
        with pytest.raises(InvalidSpec, match="is a link to /etc/passwd"):
            job.download("stolen", tmp_path)

    assert run("cp", f"{job.id}:out/a.txt", "-").out == "hello\n"
    assert "checkpoints/step" in run("files", job.id).out
    told = run("get", job.id).out
    assert f"work {tmp_path} · checkpoints " in told
    told = run("cp", f"{job.id}:", "whole/").out
    assert told.startswith(f"whole/{job.id}: ")
    assert (tmp_path / "whole" / job.id / "logs" / "worker-0.log").exists()


def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients think that the server is on another machine: what it names is not found."""
    monkeypatch.setattr("roost.client.machine._is_here", lambda _view: False)


def test_a_folder_goes_to_a_server_elsewhere(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere(monkeypatch)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "mod.py").write_text("VALUE = 41")
    (tmp_path / "train.py").write_text(
        "import os, pkg.mod\nprint(pkg.mod.VALUE + 1, sorted(os.listdir()))\n"
        "open('model.pt', 'w').write('weights')\n"
    )
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "a.log").write_text("large")
    (tmp_path / "big.bin").write_bytes(os.urandom(9_000_000))
    command = [sys.executable, "train.py"]
    listed = "42 ['.gitignore', 'big.bin', 'pkg', 'train.py']"

    # A client that is cut off on the way; the next one sends the rest.
    with Client() as client:
        assert client.where()[:2] == (False, True)
        ready = prepare(command, client.where())
        assert ready.folder is not None
        steps = uploads.send(ready.folder)
        request = next(steps)
        for _ in range(3):  # the offer, and two that are full
            request = steps.send(client.run(_one(request)))
        assert 0 < client.run(uploads.send_plan(ready.folder)).new_bytes < 9_000_000
        job = client.submit(command)
        assert job.wait(60).state == "succeeded", list(job.logs())
        assert list(job.logs()) == [listed]
        assert client.run(uploads.send_plan(ready.folder)).new_files == 0
        job.download("model.pt", tmp_path / "pkg")
        assert (tmp_path / "pkg" / "model.pt").read_text() == "weights"
        assert job.document()["workdir"] == {"sent": ready.folder.id}

        bare = client.submit({"run": "ls -A | wc -l"}, send=False)
        assert bare.wait(60).state == "succeeded"
        assert list(bare.logs()) == ["0"]
        with pytest.raises(NotFound, match="you have sent no folder"):
            client.submit({"run": "true", "workdir": {"sent": "0" * 64}})

    (tmp_path / "pkg" / "model.pt").unlink()
    told = run("submit", "--wait", "--gpus", "0", "--", *command)
    assert "nothing new" in told.err
    assert f"sends: {tmp_path} (4 files, 8.6 MiB; " in told.err
    (tmp_path / "job.yaml").write_text("name: inside\nrun: ls\nworkdir: pkg\ngpus: 0\n")
    told = run("submit", "--wait", "job.yaml")
    assert run("logs", told.out.strip()).out == "mod.py\n"

    # What no job refers to any more is removed; what one does refer to survives a kill.
    server.end(signal.SIGKILL)
    server.start()
    with Client() as client:
        again = client.submit(command)
        assert again.wait(60).state == "succeeded"
        assert len(list(again.logs())) == 1
        for each in (job, again):
            client.job(each.id).delete()
    assert len(list((server.home / "sent").glob("*/refs/*"))) == 2


def _one(request: object) -> Steps[RestReply]:
    """A conversation of one request."""
    assert isinstance(request, RestRequest)
    return ask(request)
