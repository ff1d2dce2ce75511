"""Saved runs: they go on as if nothing had happened, and hostile files get nothing done."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import random
import subprocess
import sys
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from tests.oracles.workloads import busy, machines, setup
from tests.support.effort import examples, quick

from roost import __version__
from roost.core.cells import parse_promises
from roost.core.events import Event, NodeCordoned
from roost.core.node import Notice
from roost.core.plan import Plan
from roost.core.quota import Quota
from roost.core.spec import NodeId, QueueId, QueueSpec, Range
from roost.core.state import JobState
from roost.errors import InvalidSpec, NotFound
from roost.placement import PLACERS, placer
from roost.policies import GROUP, names
from roost.policies.fifo import fifo
from roost.sim import saving
from roost.sim.log import LogWriter, compare_logs
from roost.sim.plain_data import dumps, loads
from roost.sim.results import Results
from roost.sim.saved_classes import find_class, full_name
from roost.sim.simulation import Simulation
from roost.testing.builders import core_with, node

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


_TREE = QueueSpec(QueueId("all"), quota_milli=8000)
_QUOTAS = (Quota("gpu:a", 4000, lending=2000),)


@pytest.mark.parametrize(
    "queues",
    [
        (_TREE, QueueSpec(QueueId("queue-1"), 4000, parent=_TREE.id, quotas=_QUOTAS)),
        (QueueSpec(QueueId("queue-1"), cells=parse_promises("1xswitch")),),
    ],
    ids=["a tree", "cells"],
)
def test_what_queues_were_promised_is_saved(queues: tuple[QueueSpec, ...], tmp_path: Path) -> None:
    def begun() -> Simulation:
        made = simulated("fair").setup
        return Simulation(replace(made, queues=(*queues, *made.queues[1:])))

    log, results = logged(begun())
    simulation = begun()
    first, _ = logged(simulation, results.series.time[-1] / 2)
    saving.save(simulation, tmp_path / "run")
    rest, again = logged(saving.load(tmp_path / "run"))
    assert (first + rest, again) == (log, results)


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
    for length in (0, 1, 10, 24, 25, 27, 29, 30, 67, 94, 95, 107, len(good) // 2, len(good) - 1):
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
        (b"roost simulation\n", "saved by an older Roost"),
        (b"roost simulation, plain\n", "saved by Roost ''"),
        (b"roost simulation, plain\n9.9.9\n", "saved by Roost '9.9.9'"),
        (b"roost simulation, plain\n\xff\n", "saved by Roost"),
        (f"roost simulation, plain\n{__version__}\n".encode(), "damaged"),
        (f"roost simulation, plain\n{__version__}\nabc\nx".encode(), "damaged"),
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


def signed(body: bytes | str | Any, home: str = "roost.policies.las") -> bytes:
    """A body behind a header that fits: whoever means harm can compute a digest too."""
    if not isinstance(body, bytes):
        body = f"{home}\n{json.dumps(body)}".encode()
    header = f"roost simulation, plain\n{__version__}\n{hashlib.sha256(body).hexdigest()}\n"
    return header.encode() + body


def graph(*things: Any, layouts: tuple[Any, ...] = ()) -> dict[str, Any]:
    """Things, of which the last one is the top."""
    return {"layouts": list(layouts), "things": list(things), "top": [len(things) - 1]}


def one(name: str, field: str, value: Any = 1, *things: Any) -> dict[str, Any]:
    """An instance of a class with a field set; ``value`` may refer to the things before it."""
    return graph(*things, [0, value], layouts=([name, field],))


SIMULATION = "roost.sim.simulation.Simulation"
CORE = "roost.core.controller.Core"
LAS = "roost.policies.las.Las"
HARM: dict[str, Any] = {
    # classes that are no data of a simulation
    "a class of the system": one("subprocess.Popen", "args"),
    "a class of os": one("os._wrap_close", "_proc"),
    "the client": one("roost.client.drivers.Http", "url"),
    "the log writer": one("roost.sim.log.LogWriter", "out"),
    "a codec": one("roost.core.wire._Codec", "read"),
    "a class of a policy that is not data": one("roost.policies.PolicyText", "path"),
    "a class of a module that nobody imported": one("roost.policies.none.None", "x"),
    "a function for a class": one("os.system", "x"),
    "a dotted name": one("roost.sim.simulation.Simulation.run", "x"),
    "what a module imported": one("roost.sim.simulation.Workload", "x"),
    "no name": one("", "x"),
    "a class as the name": graph([0], layouts=([7],)),
    # fields that are none
    "the class of an instance": one(SIMULATION, "__class__"),
    "the dictionary of an instance": one(SIMULATION, "__dict__", [0], ["dict", "run", 1]),
    "annotations": one("roost.core.spec.Range", "__annotations__", [0], ["dict"]),
    "a method": one(SIMULATION, "run"),
    "a property": one(SIMULATION, "over"),
    "a static method": one("roost.core.plan.Plan", "_check_size"),
    "a constructor": one(SIMULATION, "__init__"),
    "reduction": one(CORE, "__reduce_ex__"),
    "fields of a tuple": one("roost.core.spec.Range", "min"),
    "too few values": graph([0], layouts=([SIMULATION, "now"],)),
    # functions
    "a function of the system": one(CORE, "policy", [0], ["function", "os.system"]),
    "a built-in": one(CORE, "policy", [0], ["function", "builtins.eval"]),
    "the attacked function": one(CORE, "policy", [0], ["function", "roost.core.wire._record"]),
    "a function of the core": one(CORE, "policy", [0], ["function", "roost.core.topology.span"]),
    "a writer of files": one(CORE, "policy", [0], ["function", "roost.files.save"]),
    "a class for a function": one(CORE, "policy", [0], ["function", "subprocess.Popen"]),
    "attributes of a function": one(
        CORE, "policy", [0], ["function", "roost.policies.fifo.fifo.__globals__"]
    ),
    "a function where none belongs": one(
        CORE, "memo", [0], ["function", "roost.policies.fifo.fifo"]
    ),
    "a function in a list": graph(["function", "roost.policies.las.las"], ["list", [0]]),
    "a function as a key": graph(["function", "roost.core.waiting.by_arrival"], ["dict", [0], 1]),
    "a function at the top": graph(["function", "roost.core.waiting.by_arrival"]),
    "a class as a function": one(CORE, "policy", [0], ["function", LAS]),
    "a hidden method": one(CORE, "policy", [1], [0], ["method", [0], "__reduce__"]),
    "a method of a text": graph(["method", "text", "format"]),
    "a method of a list": graph(["list"], ["method", [0], "append"]),
    "a method of a generator": graph(
        ["random", None, *([1] * 625)], ["method", [0], "seed"], ["list"]
    ),
    # things that are none
    "a word that is none": graph(["eval", "1"]),
    "a thing to come": graph(["tuple", [1]], ["list"]),
    "itself": graph(["tuple", [0]]),
    "a negative number": graph(["list"], ["tuple", [-1]]),
    "a truth for a number": graph(["list"], ["list"], ["tuple", [True]]),
    "an object as a value": graph(["list", {"a": 1}]),
    "an unhashable key": graph(["list"], ["dict", [0], 1]),
    "half of an item": graph(["dict", 1]),
    "a factory": graph(["defaultdict", "exec"]),
    "an array of objects": graph(["array", "|O", "C", "AAAAAAAAAAA=", 1]),
    "an array of records": graph(["array", "i4,O", "C", "AAAAAAAAAAAAAAAA", 1]),
    "an array of another size": graph(["array", "<f8", "C", "AAAAAAAAAAA=", 2]),
    "an endless array": graph(["array", "<f8", "C", "", 1 << 60]),
    "a number that is none": graph(["int", "__import__('os')"]),
    "a generator without a state": graph(["random", None, 1, 2]),
    "a member that is none": graph(["enum", "roost.core.state.JobState", "mro"]),
    "one more member": graph([0], layouts=(["roost.core.state.JobState"],)),
    "an enumeration that is none": graph(["enum", SIMULATION, "run"]),
    "a layout that is none": graph([7]),
    "no things": {"layouts": [], "things": [], "top": [0]},
    "no object": [1, 2, 3],
    "no top": {"layouts": [], "things": []},
    "a plain list": graph(["list", 1, 2, 3]),
    "a scalar": {"layouts": [], "things": [], "top": 1},
    "an instance of something else": graph([0], layouts=([CORE],)),
}


@pytest.mark.parametrize("what", HARM)
def test_a_file_that_means_harm_is_refused_and_does_nothing(what: str, tmp_path: Path) -> None:
    before = dict(vars(Simulation))
    with watched() as seen:
        message = refused(tmp_path / "run", signed(HARM[what]))
    assert "not a saved simulation" in message
    assert seen == []
    assert dict(vars(Simulation)) == before


@pytest.mark.parametrize(
    "body",
    [b"", b"roost.policies.las", b"roost.policies.las\n" + b"[" * 200_000, b"\xff\n{}"],
)
def test_no_text_of_data_is_refused(body: bytes, tmp_path: Path) -> None:
    refused(tmp_path / "run", signed(body))


@pytest.mark.parametrize("home", ["antigravity", "roost.cli", "os", "", "roost.policies.kit"])
def test_only_modules_of_policies_are_imported(home: str, tmp_path: Path) -> None:
    assert "no installed policy" in refused(tmp_path / "run", signed(graph(["list"]), home))
    assert "antigravity" not in sys.modules


def test_the_file_that_ran_code_is_refused(tmp_path: Path) -> None:
    """It set a class's annotations to a text, and had a codec of the core evaluate it."""

    def text(said: str) -> bytes:
        return pickle.BINUNICODE + len(said).to_bytes(4, "little") + said.encode()

    harm = tmp_path / "harm"
    body = (
        pickle.PROTO + b"\x04croost.core.spec\nRange\n" + pickle.NONE + pickle.EMPTY_DICT
        + text("__annotations__") + pickle.EMPTY_DICT + text("x")
        + text(f"__import__('os').system('touch {harm}')") + pickle.SETITEM + pickle.SETITEM
        + pickle.TUPLE2 + pickle.BUILD + pickle.POP + b"croost.core.wire\n_record\n"
        + b"croost.core.spec\nRange\n" + pickle.TUPLE1 + pickle.REDUCE + pickle.STOP
    )  # fmt: skip
    header = f"roost simulation\n{__version__}\n{hashlib.sha256(body).hexdigest()}\n".encode()
    assert "older Roost" in refused(tmp_path / "run", header + body)
    assert "not a saved simulation" in refused(tmp_path / "run", signed(body))
    assert not harm.exists()


def test_data_that_was_changed_at_random_runs_nothing(good: bytes) -> None:
    """Whatever a file says, reading it opens, starts, compiles and imports nothing."""
    chance = random.Random(4)
    text = good.split(b"\n", 4)[4]
    names = [*HARM, "os.system", "__class__", "__globals__", "run", "function", "method", LAS]
    read = 0
    for _ in range(examples(200)):
        data = json.loads(text)
        for _ in range(chance.choice((1, 1, 3, 30))):
            spoil(data, chance, names)
        with watched() as seen:
            try:
                loads(json.dumps(data))
                read += 1
            except Exception:  # noqa: BLE001, S110 - it may raise any, see ``saving.load``
                pass
        assert seen == []
    assert read  # a value more or less is no harm


def spoil(data: Any, chance: random.Random, names: list[str]) -> None:
    """Change something in a graph."""
    rows = data[chance.choice(("things", "things", "layouts"))]
    row = chance.choice(rows)
    at = chance.randrange(len(row))
    other = chance.choice(chance.choice(rows))
    row[at] = chance.choice((other, chance.choice(names), [chance.randrange(9999)], None, -1, 1e9))


_SEEN: list[str] | None = None
#: What a program cannot do without telling an audit hook: open, start, compile, import, connect.
_DEEDS = ("open", "os.", "subprocess.", "exec", "compile", "import", "socket.", "ctypes.")


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _SEEN is None or not event.startswith(_DEEDS):
        return
    # Files of the test itself, and lookups of entry points, which read what is installed.
    if event in ("open", "os.listdir", "os.scandir"):
        if event != "open" or args[1] == "r" or str(args[0]).endswith("/run"):
            return
    elif event == "import" and str(args[0]).startswith(("roost.", "numpy.", "importlib")):
        return
    _SEEN.append(f"{event} {args}")


sys.addaudithook(_audit)


@contextmanager
def watched() -> Iterator[list[str]]:
    """What happened meanwhile that reaches beyond this process."""
    global _SEEN  # noqa: PLW0603 - an audit hook stays for ever
    for entry in entry_points(group=GROUP):
        entry.load()  # a policy may be imported for a file, and then its source is compiled
    seen: list[str] = []
    _SEEN = seen
    try:
        yield seen
    finally:
        _SEEN = None


def test_the_watch_sees_what_it_is_for(tmp_path: Path) -> None:
    with watched() as seen:
        (tmp_path / "harm").write_text("x")
        os.system("true")  # noqa: S605, S607 - what an attacker would call
        eval("1 + 1")  # noqa: S307 - the same
    assert {line.split()[0] for line in seen} >= {"open", "os.system", "compile", "exec"}


# -- what data can be ------------------------------------------------------------------------------


def test_every_event_is_data_and_so_is_what_they_leave_in_the_core() -> None:
    for kind in get_args(Event):
        assert find_class(full_name(kind)) is kind
    core = core_with(fifo, node("n0", 2))
    core.handle(NodeCordoned(1.0, NodeId("n0"), "a new fan", "ada"))

    found: Any = loads(dumps(core))

    assert found.ledger.nodes[NodeId("n0")].cordon == Notice(1.0, "a new fan", "ada")


def test_data_comes_back_as_it_was() -> None:
    shared = [1, 2]
    cycle: dict[str, Any] = {"shared": shared}
    cycle["self"] = cycle
    chance = random.Random(3)
    memo: dict[str, Any] = {
        "numbers": (0, -1, 1 << 5000, -(1 << 70), True, 0.1, -0.0, float("inf"), None, "é\n"),
        "shared": shared,
        "cycle": cycle,
        "sets": ({1, 2}, frozenset({("a", 1)}), b"\x00\xff"),
        "deque": deque([1, 2, 3], maxlen=3),
        "lists": defaultdict(list, {1: [2]}),
        "array": np.arange(6.0).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "scalar": np.float64(0.1),
        "empty": np.zeros((0, 3), dtype=np.int32),
        "chance": chance,
        "state": JobState.RUNNING,
        "range": Range(1, 2),
    }
    found: Any = loads(dumps(memo))
    assert found["numbers"] == memo["numbers"]
    assert [type(number) for number in found["numbers"]] == [type(n) for n in memo["numbers"]]
    assert found["shared"] is found["cycle"]["shared"]
    assert found["cycle"]["self"] is found["cycle"]
    assert found["sets"] == memo["sets"]
    assert found["deque"] == memo["deque"]
    assert found["deque"].maxlen == 3
    assert found["lists"][7] == []
    for name in ("array", "fortran", "empty"):
        assert np.array_equal(found[name], memo[name])
        assert found[name].dtype == memo[name].dtype
        assert found[name].flags.f_contiguous == memo[name].flags.f_contiguous
        found[name].flags.writeable = True
    assert type(found["scalar"]) is np.float64
    assert found["chance"].getstate() == chance.getstate()
    assert found["state"] is JobState.RUNNING
    assert found["range"] == Range(1, 2)


@pytest.mark.parametrize(
    "thing",
    [lambda: None, os.system, Path, Path(), np.array([None]), io.StringIO(), object()],
    ids=["lambda", "function", "class", "path", "array of objects", "stream", "object"],
)
def test_what_is_no_data_is_not_written(thing: object) -> None:
    with pytest.raises(InvalidSpec):
        dumps([thing])
