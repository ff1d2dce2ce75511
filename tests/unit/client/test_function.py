"""Functions as jobs: packed where they are written, called where they run, results at home."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import pytest
from tests.unit.client.fakes import FakeServer

import roost
from roost.client import RemoteError, environment
from roost.client.function import Function
from roost.client.payload import pack, unpack
from roost.errors import Conflict, InvalidSpec, NotFound


class Diverged(Exception):
    """An exception of the user's own."""

    def __init__(self, step: int) -> None:
        super().__init__(f"loss is NaN at step {step}")
        self.step = step

    def __reduce__(self) -> Any:
        return Diverged, (self.step,)


class Stubborn(Exception):
    """One that cannot be unpickled."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} {two}")


@roost.job(workers=(1, 4), gpus=1, name="train-it", env={"A": "1"}, run_time="10m", retry=2)
def train(rate: float, epochs: int = 3) -> dict[str, float]:
    """Trains."""
    return {"loss": rate * epochs, "mean": float(np.mean([rate, rate]))}


@roost.job
def diverge(step: int) -> None:
    sys.stderr.write("about to diverge\n")
    raise Diverged(step)


@roost.job
def stubborn() -> None:
    raise Stubborn(1, 2)


@roost.job
def ranked() -> int:
    rank = int(os.environ["RANK"])
    if os.environ.get("FAILS") == str(rank):
        raise ValueError(f"rank {rank} fails")
    return rank


@roost.job(client=FakeServer().client())
def countdown(number: int) -> list[int]:
    return [number, *countdown(number - 1)] if number else []


@roost.job
def unpicklable() -> object:
    return (x for x in [1])


@roost.job
def leave(code: object) -> None:
    sys.exit(code)  # type: ignore[arg-type]


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


class Ran:
    """A job that was run here, as the engine would."""

    def __init__(self, server: FakeServer, folder: Path, handle: Any, **env: str) -> None:
        self.payload, self.result = folder / "payload", folder / "result"
        self.payload.write_bytes(server.payload())
        self.env = {"PATH": os.environ["PATH"], "ROOST_PAYLOAD": str(self.payload)}
        self.env |= {"ROOST_RESULT": str(self.result), "RANK": "0", **env}
        command = server.bodies[-1]["job"]["command"]
        python = server.bodies[-1]["job"]["python"]
        assert command[0] == "python"
        self.done = subprocess.run(  # noqa: S603 - our own
            [python, *command[1:]],
            cwd=folder,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        state = "failed" if self.done.returncode else "succeeded"
        server.jobs[handle.id] |= {"state": state, "exit_code": self.done.returncode}
        if self.result.exists():
            server.results[handle.id] = self.result.read_bytes()


@pytest.fixture
def ran(server: FakeServer, tmp_path: Path) -> Callable[..., Any]:
    """Submits a call, runs the job in a process of its own, and gives its handle."""

    def run(function: Function[Any, Any], *args: Any, **env: str) -> Any:
        handle = function.options().bind(*args)
        submitted: Any = server.client().submit(handle)
        folder = tmp_path / submitted.id
        folder.mkdir()
        submitted.ran = Ran(server, folder, submitted, **env)
        return submitted

    return run


def test_called_it_runs_here_and_tells_who_it_is() -> None:
    assert train(0.5) == train.local(0.5) == {"loss": 1.5, "mean": 0.5}
    assert train.__doc__ == "Trains."
    assert repr(train) == "<roost.job train>"


def test_submitted_it_is_a_job_file_with_a_payload(server: FakeServer) -> None:
    server.client().submit(train.bind(0.5))
    body = server.bodies[-1]
    assert body["job"] == {
        "name": "train-it",
        "python": sys.executable,
        "command": ["python", "-m", "roost.client.call"],
        "env": {"A": "1"},
        "workers": "1..4",
        "resources": {"gpu": 1},
        "run_time": "10m",
        "retry": {"max": 2},
    }
    header = unpack(server.payload()).header
    assert header["function"] == "train"
    assert header["modules"] == {"numpy": np.__version__}
    assert header["python"].startswith(f"3.{sys.version_info.minor}.")


def test_submit_goes_to_the_usual_server(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.client.function.usual", server.client)
    assert train.submit(0.5).id.startswith("train-it-")


def test_another_machine_chooses_its_own_interpreter() -> None:
    ready = train.bind(0.5).submission(local=False)
    assert "python" not in ready.document
    assert ready.payload is not None
    assert "path" not in unpack(ready.payload).header


def test_a_result_comes_home(ran: Callable[..., Any]) -> None:
    handle = ran(train, 0.5, 4)
    assert handle.ran.done.returncode == 0, handle.ran.done.stderr
    assert handle.result() == {"loss": 2.0, "mean": 0.5}
    assert {path.name for path in handle.ran.result.parent.iterdir()} == {"payload", "result"}


def test_the_same_awaited(server: FakeServer, ran: Callable[..., Any]) -> None:
    job = ran(train, 0.5).id

    async def talk() -> Any:
        async with server.async_client() as client:
            return await (await client.job(job)).result()

    assert asyncio.run(talk()) == {"loss": 1.5, "mean": 0.5}


def test_an_exception_is_raised_here_as_itself_with_its_traceback(
    ran: Callable[..., Any],
) -> None:
    handle = ran(diverge, 7)
    assert handle.ran.done.returncode == 1
    assert "about to diverge" in handle.ran.done.stderr
    assert "Diverged: loss is NaN at step 7" in handle.ran.done.stderr
    assert "call.py" not in handle.ran.done.stderr

    with pytest.raises(Diverged, match="step 7") as caught:
        handle.result()
    assert caught.value.step == 7
    assert "raise Diverged(step)" in caught.value.__notes__[0]


def test_an_exception_that_cannot_be_loaded_is_told(ran: Callable[..., Any]) -> None:
    with pytest.raises(RemoteError, match=r"failed: Stubborn: 1 2") as caught:
        ran(stubborn).result()
    assert "raise Stubborn(1, 2)" in caught.value.trace


def test_a_function_may_call_itself(ran: Callable[..., Any]) -> None:
    assert ran(countdown, 3).result() == [3, 2, 1]


def test_rank_0_has_the_result_and_any_rank_may_fail(ran: Callable[..., Any]) -> None:
    assert ran(ranked, RANK="0").result() == 0
    other = ran(ranked, RANK="1")
    with pytest.raises(NotFound):
        other.result()
    with pytest.raises(ValueError, match="rank 1 fails"):
        ran(ranked, RANK="1", FAILS="1").result()


def test_what_fails_first_among_the_others_stays_unless_rank_0_fails_too(
    server: FakeServer, ran: Callable[..., Any]
) -> None:
    handle = ran(ranked, RANK="2", FAILS="2")
    folder = handle.ran.result.parent
    Ran(server, folder, handle, RANK="1", FAILS="1")
    with pytest.raises(ValueError, match="rank 2 fails"):
        handle.result()
    Ran(server, folder, handle, RANK="0", FAILS="0")
    with pytest.raises(ValueError, match="rank 0 fails"):
        handle.result()


def test_a_value_that_cannot_be_pickled_fails_the_job_in_one_sentence(
    ran: Callable[..., Any],
) -> None:
    handle = ran(unpicklable)
    assert handle.ran.done.returncode == 1
    assert handle.ran.done.stderr.startswith("roost: what unpicklable returned cannot be pickled")
    with pytest.raises(RemoteError, match="cannot be pickled"):
        handle.result()


@pytest.mark.parametrize(("code", "status"), [(0, 0), (3, 3), ("so it ends", 1), (None, 0)])
def test_sys_exit_is_the_exit_status(ran: Callable[..., Any], code: object, status: int) -> None:
    handle = ran(leave, code)
    assert handle.ran.done.returncode == status
    if status:
        with pytest.raises(RemoteError, match=r"sys\.exit"):
            handle.result()
    else:
        assert handle.result() is None


def test_a_job_that_left_nothing_says_how_it_ended(server: FakeServer) -> None:
    client = server.client()
    verdict = {"kind": "oom", "phrase": "out of memory", "advice": "ask for more"}
    killed = server.add("a-11111", "failed", exit_code=137, verdict=verdict)
    with pytest.raises(RemoteError, match="failed: out of memory: ask for more"):
        client.job(killed).result()
    with pytest.raises(RemoteError, match="was cancelled"):
        client.job(server.add("b-22222", "cancelled")).result()
    with pytest.raises(NotFound):
        client.job(server.add("c-33333", "succeeded")).result()


def test_results_of_others_are_never_loaded(server: FakeServer) -> None:
    job = server.add("a-11111", "succeeded", user="mallory")
    server.results[job] = pack({"outcome": "returned"}, b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(Conflict, match="mallory's"):
        server.client().job(job).result()
    assert not any(request.url.path.endswith("/result") for request in server.requests)


def test_a_damaged_result_is_an_error_of_ours(server: FakeServer) -> None:
    job = server.add("a-11111", "succeeded")
    server.results[job] = b"nonsense"
    with pytest.raises(InvalidSpec, match="not something a Roost client packed"):
        server.client().job(job).result()
    server.results[job] = pack({"outcome": "returned"}, b"nonsense")
    with pytest.raises(RemoteError, match="cannot be loaded here"):
        server.client().job(job).result()


# -- the environment -------------------------------------------------------------------------------


def header(**changed: Any) -> dict[str, Any]:
    return {**environment.describe(train.function), **changed}


def test_the_same_environment_does_not_differ() -> None:
    assert environment.compare(header()) == ((), ())


def test_what_differs_is_named() -> None:
    major = np.__version__.partition(".")[0]
    found = environment.compare(
        header(
            python="3.9.1",
            modules={"numpy": f"{int(major) + 1}.0", "click": "8.0.0", "no_such_thing": "1.2"},
        )
    )
    assert found.errors[0].startswith("Python is 3.")
    assert "was 3.9.1" in found.errors[0]
    assert f"numpy is {np.__version__} here and was {int(major) + 1}.0" in found.errors
    assert "no_such_thing 1.2 is not installed here" in found.errors
    assert [text.split()[0] for text in found.warnings] == ["click"]


def test_a_job_in_a_wrong_environment_fails_with_one_sentence(
    server: FakeServer, tmp_path: Path
) -> None:
    handle = server.client().submit(train.bind(0.5))
    packed = unpack(server.payload())
    wrong = pack({**packed.header, "python": "2.7.18"}, b"never loaded")
    (tmp_path / "p").write_bytes(wrong)
    env = {"ROOST_PAYLOAD": str(tmp_path / "p"), "ROOST_RESULT": str(tmp_path / "r")}
    done = subprocess.run(
        [sys.executable, "-m", "roost.client.call"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "this environment does not fit the function: Python is 3." in done.stderr

    server.jobs[handle.id]["state"] = "failed"
    server.results[handle.id] = (tmp_path / "r").read_bytes()
    with pytest.raises(RemoteError, match=r"was 2\.7\.18"):
        handle.result()


def test_a_payload_that_is_not_there_is_told_in_one_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "roost.client.call"],
        env={"ROOST_PAYLOAD": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "roost: the submitted function cannot be read: no such file: /nowhere\n"


def test_modules_are_found_in_closures_imports_and_globals() -> None:
    click = pytest.importorskip("click")

    def inner() -> Any:
        import yaml  # noqa: PLC0415

        return yaml, click, [np.array(x) for x in (1, 2)], roost

    assert environment.modules(inner) >= {"yaml", "click", "numpy"}
    assert "roost" not in environment.modules(inner)


SCRIPT = """
import sys
import roost, helper

@roost.job
def work(x):
    import later
    return helper.double(x) + later.ONE

class Own(Exception): pass

@roost.job
def fail():
    raise Own("mine")

if __name__ == "__main__":
    ready = globals()[sys.argv[1]].bind(*map(int, sys.argv[3:])).submission(local=True)
    open(sys.argv[2], "wb").write(ready.payload)
"""


def test_modules_beside_the_script_are_found_on_the_same_machine(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "script.py").write_text(SCRIPT)
    (code / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    (code / "later.py").write_text("ONE = 1\n")
    packed, left = tmp_path / "p", tmp_path / "r"
    subprocess.run(  # noqa: S603 - our own
        [sys.executable, str(code / "script.py"), "work", str(packed), "20"],
        cwd=tmp_path,
        check=True,
    )
    env = {"ROOST_PAYLOAD": str(packed), "ROOST_RESULT": str(left)}
    elsewhere = tmp_path / "run"
    elsewhere.mkdir()
    subprocess.run([sys.executable, "-m", "roost.client.call"], cwd=elsewhere, env=env, check=True)
    assert unpack(left.read_bytes()).load() == 41


def test_the_module_of_the_function_travels_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import mine  # type: ignore[import-not-found] # noqa: PLC0415

    payload = mine.fail.bind().submission(local=False).payload
    assert cloudpickle.list_registry_pickle_by_value() == set()
    (tmp_path / "p").write_bytes(payload)
    env = {"ROOST_PAYLOAD": str(tmp_path / "p"), "ROOST_RESULT": str(tmp_path / "r")}
    done = subprocess.run(
        [sys.executable, "-m", "roost.client.call"],
        cwd="/",
        env=env,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert isinstance(unpack((tmp_path / "r").read_bytes()).load(), mine.Own)
    for name in ("mine", "helper"):
        sys.modules.pop(name)


# -- what cannot be submitted ----------------------------------------------------------------------


def test_a_payload_has_a_limit() -> None:
    with pytest.raises(InvalidSpec, match=r"are 11\.\d MiB, more than 10 MiB; hand over the path"):
        train.bind(b"x" * (11 << 20)).submission(local=True)  # type: ignore[arg-type]


def test_what_cannot_be_pickled_is_named() -> None:
    with pytest.raises(InvalidSpec, match="train and its arguments cannot be pickled"):
        train.bind(x for x in [1]).submission(local=True)  # type: ignore[arg-type]


def test_fields_are_those_of_the_job_file() -> None:
    with pytest.raises(InvalidSpec, match="gpu"):
        train.options(gpuss=1).bind(0.5).submission(local=True)
    with pytest.raises(InvalidSpec, match="'command' cannot be given"):
        roost.job(command=["x"])


def test_secrets_come_from_the_caller_and_are_shown_nowhere(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "canary")
    ready = train.options(secrets=["KEY"]).bind(0.5).submission(local=True)
    assert ready.secrets == {"KEY": "canary"}
    assert "canary" not in repr(ready)
    server.client().submit(ready)
    assert server.bodies[-1]["secrets"] == {"KEY": "canary"}
    assert "canary" not in str(server.bodies[-1]["job"])
    monkeypatch.delenv("KEY")
    with pytest.raises(InvalidSpec, match="the secret KEY is not set"):
        train.options(secrets=["KEY"]).bind(0.5).submission(local=True)


def test_files_mappings_and_commands_are_submitted(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA", "/data")
    client = server.client()
    (tmp_path / "t.yaml").write_text("name: t\nenv: {DATA: null}\nworkdir: src\nrun: echo\n")
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path)
    client.submit(tmp_path / "t.yaml")
    job = server.bodies[-1]["job"]
    assert (job["env"], job["workdir"]) == ({"DATA": "/data"}, str(tmp_path / "src"))

    (tmp_path / "t.sbatch").write_text("#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --foo=1\necho\n")
    assert client.submit(str(tmp_path / "t.sbatch")).notes
    client.submit(["no-such-program", "hello"])
    job = server.bodies[-1]["job"]
    assert (job["command"], job["workdir"]) == (["no-such-program", "hello"], str(tmp_path))
    client.submit({"run": "echo"})
    assert server.bodies[-1]["job"]["workdir"] == str(tmp_path)
    with pytest.raises(InvalidSpec, match="'float' cannot be submitted: give"):
        client.submit(1.5)  # type: ignore[arg-type]
