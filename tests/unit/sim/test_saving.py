"""Saved runs: they go on as if nothing had happened, and hostile files get nothing done."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from tests.oracles.workloads import busy, machines, setup
from tests.support.effort import quick

from roost import __version__
from roost.core.plan import Plan
from roost.errors import InvalidSpec, NotFound
from roost.placement import PLACERS, placer
from roost.policies import names
from roost.policies.fifo import fifo
from roost.policies.las import Las
from roost.sim import report, saving
from roost.sim.log import LogWriter, compare_logs
from roost.sim.results import Results
from roost.sim.simulation import Simulation
from roost_bench.simulator import SimBench

INSTANTS = (0.0, 0.1, 0.5, 0.9, 1.0)


def simulated(name: str, placer_name: str = "consolidate") -> Simulation:
    """A run with failures, elastic jobs, quotas and costs; its timeline is recorded."""
    workload = busy(30, seed=5, gpus=16, largest=2 if name == "static" else 16)
    made = setup(quick(name), workload, machines(4, 4), seed=5)
    return Simulation(
        replace(made, policy_name=name, placer=placer(placer_name), placer_name=placer_name)
    )


def shown(results: Results) -> Results:
    return replace(results, wall_s=0.0, cpu_s=0.0)


def logged(simulation: Simulation, until: float = float("inf")) -> tuple[str, Results]:
    out = io.StringIO()
    results = simulation.run(until, observer=LogWriter(out))
    return out.getvalue(), shown(results)


@cache
def whole(name: str, placer_name: str = "consolidate") -> tuple[str, Results]:
    return logged(simulated(name, placer_name))


def parts(name: str, placer_name: str, path: Path) -> tuple[str, Results]:
    """The run of ``whole``, saved and resumed at every instant of ``INSTANTS``."""
    end = whole(name, placer_name)[1].series.time[-1]
    simulation, log = simulated(name, placer_name), ""
    for instant in INSTANTS:
        more, _ = logged(simulation, instant * end)
        log += more
        saving.save(simulation, path)
        simulation = saving.load(path)
    more, results = logged(simulation)
    return log + more, results


@pytest.mark.parametrize("name", names())
def test_a_run_in_parts_is_the_whole_run_to_the_last_bit(name: str, tmp_path: Path) -> None:
    log, results = parts(name, "consolidate", tmp_path / "run")

    whole_log, whole_results = whole(name)
    assert results == whole_results
    assert log == whole_log


@pytest.mark.parametrize("placer_name", PLACERS)
def test_so_it_is_with_every_placer(placer_name: str, tmp_path: Path) -> None:
    assert parts("srtf", placer_name, tmp_path / "run") == whole("srtf", placer_name)


def save_halves(folder: str) -> None:
    for name in names():
        simulation = simulated(name)
        log, _ = logged(simulation, whole(name)[1].series.time[-1] / 2)
        saving.save(simulation, Path(folder, name))
        Path(folder, f"{name}.log").write_text(log)


def finish_halves(folder: str) -> None:
    for name in names():
        log, _ = logged(saving.load(Path(folder, name)))
        with Path(folder, f"{name}.log").open("a") as out:
            out.write(log)


def test_another_process_with_other_hashes_goes_on_as_well(tmp_path: Path) -> None:
    for seed, step in ((1, save_halves), (2, finish_halves)):
        script = f"import tests.unit.sim.test_saving as t; t.{step.__name__}({str(tmp_path)!r})"
        subprocess.run(  # noqa: S603 - our own
            [sys.executable, "-c", script],
            env={
                **os.environ,
                "PYTHONHASHSEED": str(seed),
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            check=True,
        )
    for name in names():
        assert (tmp_path / f"{name}.log").read_text() == whole(name)[0], name


def test_one_file_can_be_resumed_many_times(tmp_path: Path) -> None:
    simulation = simulated("tiresias")
    simulation.run(20_000.0)
    saving.save(simulation, tmp_path / "run")

    ends = [logged(saving.load(tmp_path / "run")) for _ in range(2)]
    assert ends[0] == ends[1]
    assert ends[0][1] == whole("tiresias")[1]


def test_saving_does_not_disturb_the_run(tmp_path: Path) -> None:
    simulation = simulated("las")
    simulation.run(20_000.0)
    saving.save(simulation, tmp_path / "run")
    assert shown(simulation.run()) == whole("las")[1]


def test_a_later_run_differs_from_an_earlier_one_where_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "whole").write_text(whole("las")[0])
    (tmp_path / "other").write_text(whole("srtf")[0])
    assert compare_logs(tmp_path / "whole", tmp_path / "other").line is not None


# -- policies that cannot come back ----------------------------------------------------------------


def test_a_policy_that_no_entry_point_names_cannot_be_saved(tmp_path: Path) -> None:
    def mine(plan: Plan) -> None:
        fifo(plan)

    made = replace(simulated("fifo").setup, policy=mine, policy_name="mine")
    with pytest.raises(InvalidSpec, match="policy 'mine' cannot be saved: it is from"):
        saving.save(Simulation(made), tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_policy_with_something_that_cannot_be_saved_is_named(tmp_path: Path) -> None:
    simulation = simulated("fifo")
    simulation.core.memo["mine"] = lambda: None
    with pytest.raises(InvalidSpec, match="policy 'fifo' cannot be saved"):
        saving.save(simulation, tmp_path / "run")
    assert not list(tmp_path.iterdir())


# -- files that are not what they should be --------------------------------------------------------


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A saved run."""
    path = tmp_path_factory.mktemp("saved") / "run"
    simulation = simulated("las")
    simulation.run(10_000.0)
    saving.save(simulation, path)
    return path.read_bytes()


def refused(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(InvalidSpec) as caught:
        saving.load(path)
    message = str(caught.value)
    assert str(path) in message
    assert len(message.splitlines()) == 1
    return message


def test_a_file_cut_short_anywhere_is_refused(good: bytes, tmp_path: Path) -> None:
    for length in (0, 1, 10, 17, 18, 20, 22, 23, 60, 87, 88, 100, len(good) // 2, len(good) - 1):
        refused(tmp_path / "run", good[:length])


def test_a_flipped_bit_anywhere_is_noticed(good: bytes, tmp_path: Path) -> None:
    chance = random.Random(1)
    for _ in range(50):
        at = chance.randrange(len(good))
        flipped = bytes([good[at] ^ 1 << chance.randrange(8)])
        refused(tmp_path / "run", good[:at] + flipped + good[at + 1 :])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a saved simulation"),
        (b"id,submitted_at\n", "not a saved simulation"),
        (pickle.dumps([1, 2]), "not a saved simulation"),
        (b"roost simulation\n", "saved by Roost ''"),
        (b"roost simulation\n9.9.9\n", "saved by Roost '9.9.9'"),
        (b"roost simulation\n\xff\n", "saved by Roost"),
        (f"roost simulation\n{__version__}\n".encode(), "damaged"),
        (f"roost simulation\n{__version__}\nabc\nx".encode(), "damaged"),
    ],
)
def test_a_foreign_file_is_refused(content: bytes, says: str, tmp_path: Path) -> None:
    assert says in refused(tmp_path / "run", content)


def test_a_file_that_is_not_there_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such file"):
        saving.load(tmp_path / "none")
    with pytest.raises(InvalidSpec, match="is a folder"):
        saving.load(tmp_path)


# -- files that mean harm --------------------------------------------------------------------------


def signed(body: bytes) -> bytes:
    """A body behind a header that fits: whoever means harm can compute a digest too."""
    header = f"roost simulation\n{__version__}\n{hashlib.sha256(body).hexdigest()}\n"
    return header.encode() + body


class Calls:
    """Pickles into the call of a function."""

    def __init__(self, function: Callable[..., Any], *args: object) -> None:
        self.function, self.args = function, args

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return self.function, self.args


def named(module: str, name: str, *args: object) -> bytes:
    """A pickle that calls what has that name, dots and all, with plain arguments."""
    marked = pickle.dumps(args, protocol=0)[:-1]  # without its last opcode, STOP
    start = b"\x80\x04" + pickle.dumps(module)[2:-1] + pickle.dumps(name)[2:-1]
    return start + b"\x93" + marked + b"R."


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A file that would be there if something had been run."""
    return tmp_path / "harm"


def harmful(target: Path) -> dict[str, Callable[[], bytes]]:
    place = str(target)
    las = Las()
    return {
        "os.system": lambda: pickle.dumps(Calls(os.system, f"touch {place}")),
        "builtins.open": lambda: pickle.dumps(Calls(open, place, "w")),
        "builtins.eval": lambda: pickle.dumps(Calls(eval, f"open({place!r}, 'w')")),
        "builtins.exec": lambda: pickle.dumps(Calls(exec, f"open({place!r}, 'w')")),
        "Path.touch": lambda: pickle.dumps(Calls(Path.touch, target)),
        "partial": lambda: pickle.dumps(Calls(partial(os.system, f"touch {place}"))),
        "roost.files": lambda: named("roost.files", "save", place, "x"),
        "roost.files, imported": lambda: named("roost.sim.saving", "save_bytes", place, b"x"),
        "roost.sim.saving": lambda: named("roost.sim.saving", "load", place),
        "roost.sim.report": lambda: pickle.dumps(Calls(report.write_report, place, [])),
        "roost.traces": lambda: named("roost.traces.table", "write_workload", place, None),
        "roost.cli": lambda: named("roost.cli", "main", ["generate", place]),
        "roost.sim.log": lambda: named("roost.sim.log", "write_log", place),
        "roost_bench.simulator": lambda: pickle.dumps(SimBench(place, 1, 1, "pack")),
        "roost.policies": lambda: named("roost.policies", "policy", "fifo"),
        "dotted, a module": lambda: named("roost.sim.simulation", "time.sleep", 0),
        "dotted, a function": lambda: named("roost.sim.simulation", "Simulation.run", None),
        "dotted, globals": lambda: named(
            "roost.sim.simulation", "check.__globals__.__getitem__", "__builtins__"
        ),
        "dotted, subclasses": lambda: named("roost.core.plan", "Plan.__subclasses__"),
        "a function of the core": lambda: named("roost.core.topology", "span", None, None),
        "a function of the simulator": lambda: named("roost.sim.simulation", "check", None),
        "getattr, hidden": lambda: pickle.dumps(Calls(getattr, las, "__class__")),
        "getattr, a value": lambda: pickle.dumps(Calls(getattr, las, "__doc__")),
        "getattr, a field": lambda: pickle.dumps(Calls(getattr, simulated("las").setup, "seed")),
        "getattr, a method elsewhere": lambda: pickle.dumps(
            Calls(getattr, random.Random(1), "random")
        ),
        "getattr, of a text": lambda: named("builtins", "getattr", "text", "upper"),
        "line breaks in a name": lambda: named("os", "a\nb\x1b[31m"),
        "importlib": lambda: named("importlib", "import_module", "antigravity"),
        "a module that is not there": lambda: named("roost.policies.none", "none"),
        "a name that is not there": lambda: named("roost.policies.fifo", "none"),
        "operator.attrgetter": lambda: named("operator", "attrgetter", "x"),
        "copyreg._reconstructor": lambda: named("copyreg", "_reconstructor", None, None, None),
        "builtins.__import__": lambda: named("builtins", "__import__", "antigravity"),
        "a recursion": lambda: b"\x80\x04" + b"(" * 10 + b"l" * 9 + b".",
        "no pickle at all": lambda: b"\xff\xff\xff",
        "a plain list": lambda: pickle.dumps([1, 2, 3]),
        "a class instead of an instance": lambda: pickle.dumps(Simulation),
    }


@pytest.mark.parametrize("what", harmful(Path()))
def test_a_file_that_means_harm_is_refused_and_does_nothing(
    what: str, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = harmful(target)[what]()
    calls: list[object] = []
    monkeypatch.setattr(os, "system", calls.append)

    refused(tmp_path / "run", signed(body))

    assert not target.exists()
    assert calls == []
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_classes_stay_as_they_are(tmp_path: Path) -> None:
    run = Simulation.run
    # The class, then a state as for slots, which pickle sets attribute by attribute.
    start = b"\x80\x04" + pickle.dumps(Simulation)[2:-1]
    for name in ("run", "harm"):
        state = pickle.dumps((None, {name: 1}), protocol=0)[:-1]
        refused(tmp_path / "run", signed(start + state + b"b."))
    assert Simulation.run is run
    assert not hasattr(Simulation, "harm")


def test_methods_of_policies_are_let_in(tmp_path: Path) -> None:
    body = pickle.dumps(Calls(getattr, Las(), "waiting"))  # what pickle makes of a bound method
    found = saving._Unpickler(io.BytesIO(body)).load()
    assert found.__func__ is Las.waiting
    assert found.__self__ == Las()
    assert "not a saved simulation" in refused(tmp_path / "run", signed(body))
