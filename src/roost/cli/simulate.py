"""``roost simulate``: one run."""

from __future__ import annotations

import contextlib
import functools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roost.cli.options import (
    complete_policies,
    output_option,
    placer_option,
    progress_option,
    report_option,
    scenario_options,
    since_option,
)
from roost.cli.parameter_types import Duration, OutFile, Verb, option
from roost.cli.simulate_options import SimulationOptions

if TYPE_CHECKING:
    from roost.cli.simulated_usage import WorldUsage
    from roost.sim.results import Results
    from roost.sim.simulation import Observer, Simulation

#: What can be said about a run that is already under way.
_LATER = {"resume", "stop_at", "save", "events", "output", "report", "progress", "price"}
#: What can be said about a run that begins in the present of a cluster.
_PRESENT = (_LATER - {"resume"}) | {"source", "policy", "placer"}
_LIVE, _HISTORY = "live", "history"


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost simulate jobs.csv --nodes 16 --policy srtf --restart 30s --checkpoint-every 10m
  roost simulate --synthetic jobs=2000,load=0.9 --nodes 8 --policy tiresias --report run.html
  roost simulate jobs.csv --nodes 16 --stop-at 2d --save half.roost
  roost simulate --resume half.roost --report run.html
  roost simulate --from live --policy srtf
  roost simulate --from history --since 7d --policy srtf""",
)
@scenario_options
@option(
    "-p",
    "--policy",
    section="Policy",
    metavar="NAME",
    default="fifo",
    show_default=True,
    shell_complete=complete_policies,
    help="Which job runs next; see roost policies.",
)
@placer_option
@option(
    "--seed",
    section="Run",
    type=click.IntRange(0),
    metavar="N",
    default=0,
    show_default=True,
    help="Of generated jobs, failures and errors of estimates.",
)
@option(
    "--stop-at", section="Run", type=Duration(endless=True), help="Stop at that simulated time."
)
@option("--save", section="Run", type=OutFile(), help="Save the run where it stops.")
@option(
    "--resume",
    section="Run",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Go on with a saved run; all that it depends on is as it was.",
)
@option(
    "--from",
    "source",
    section="Run",
    metavar="live|history|FILE",
    help="Begin with the jobs and nodes of the running server, or of its state in a file; with its "
    "own policy and placer unless others are given. --stop-at then counts from that moment. "
    "With history: replay the jobs that it has run (see --since) on its nodes.",
)
@since_option
@output_option
@report_option
@option(
    "--events",
    section="Output",
    type=OutFile(stream=True),
    help="Write the event log, for roost diff. A resumed run logs what happens from there on: "
    "put after the log of the saved run, it is the log of the whole.",
)
@option(
    "--price",
    section="Output",
    metavar="PRICE|own",
    help="Say what the queues' GPU hours cost: at a price such as 2.30, or at what nodes of one's "
    "own cost (own, own:price=250000,kw=8,...; see roost weigh).",
)
@progress_option
def simulate(  # noqa: PLR0913 - a verb takes its options
    asked: SimulationOptions,
    policy: str,
    placer: str,
    seed: int,
    *,
    stop_at: float | None,
    save: Path | None,
    resume: Path | None,
    source: str | None,
    since: float | None,
    output: str,
    report: Path | None,
    events: Path | None,
    price: str | None,
    progress: bool | None,
) -> None:
    """Replay the workload TRACE under one policy and print what became of it."""
    from roost.cli.figures import note_unfinished, print_run
    from roost.cli.history import recorded
    from roost.cli.simulated_usage import WorldUsage, print_usage
    from roost.sim import saving
    from roost.sim.scenario import Scenario
    from roost.sim.simulation import Simulation

    # A saved run may be asked for its report later, and that shows all of it.
    timeline = report is not None or save is not None
    if source != _HISTORY:
        asked.refuse(("since",), "goes with --from history")
    if resume is not None:
        asked.refuse(asked.typed.keys() - _LATER, "does not go with --resume, which tells it")
        simulation = saving.load(resume)
    elif source == _HISTORY:
        Scenario.check_names(policy, placer)
        scenario = asked.scenario(timeline=timeline, recorded=recorded(since))
        simulation = Simulation(scenario.setup(policy, placer, seed))
    elif source is not None:
        asked.refuse(asked.typed.keys() - _PRESENT, "does not go with --from, which tells it")
        simulation = _present(source, _names(asked, policy, placer), timeline=timeline)
        stop_at = None if stop_at is None else simulation.now + stop_at
    else:
        Scenario.check_names(policy, placer)  # a typo shows before a large trace is read
        simulation = Simulation(asked.scenario(timeline=timeline).setup(policy, placer, seed))
    usage = None if price is None else WorldUsage(simulation)
    results = _run(simulation, stop_at, events, usage, progress=progress)
    try:
        if save is not None:
            saving.save(simulation, save)
        if report is not None:
            from roost.sim.report import write_report

            write_report(report, [results])
    finally:  # also on a full disk: the run may have taken long
        print_run(
            results,
            output,
            stopped_at=None if simulation.over else stop_at,
            to_come=len(simulation.jobs) - len(results.jobs),
        )
    if usage is not None and price is not None and output == "table":
        print_usage(usage, price)
    if stop_at is None:
        note_unfinished([results])
    if report is not None:
        click.echo(f"report: {report}", err=output != "table")


def _run(
    simulation: Simulation,
    stop_at: float | None,
    events: Path | None,
    usage: WorldUsage | None,
    *,
    progress: bool | None,
) -> Results:
    from roost.cli.progress import watching
    from roost.sim.log import write_log

    with contextlib.ExitStack() as stack:
        log = None if events is None else stack.enter_context(write_log(events))
        observer = _both(log, None if usage is None else usage.note)
        watch = stack.enter_context(watching([simulation.setup.policy_name], show=progress))
        tell = None if watch is None else functools.partial(watch, 0)
        if tell is not None:
            tell(simulation.now, simulation.core.finished, len(simulation.jobs))
        until = math.inf if stop_at is None else stop_at
        return simulation.run(until, observer=observer, progress=tell)


def _both(log: Observer | None, meter: Observer | None) -> Observer | None:
    """What is shown every batch: the log, the meter, both or nothing."""
    if log is None or meter is None:
        return log or meter

    def observe(*batch: Any) -> None:
        log(*batch)
        meter(*batch)

    return observe


def _names(asked: SimulationOptions, policy: str, placer: str) -> dict[str, str]:
    """The policy and the placer, as far as they were typed."""
    given = {"policy": policy, "placer": placer}
    return {name: text for name, text in given.items() if name in asked.typed}


def _present(source: str, names: dict[str, str], *, timeline: bool) -> Simulation:
    """A simulation that begins in the present of a cluster; says what it takes for granted."""
    from roost.sim.forecast import present_run
    from roost.sim.scenario import Scenario

    Scenario.check_names(names.get("policy", "fifo"), names.get("placer", "consolidate"))
    state = _live() if source == _LIVE else _read(source)
    chosen = {"policy": "fifo", "placer": "consolidate"}
    if isinstance(state, dict) and "core" in state:  # as the server tells it, with what it uses
        own = {name: state[name] for name in chosen if isinstance(state.get(name), str)}
        chosen, state = chosen | own, state["core"]
    chosen |= names
    name = Path(source).name
    found = present_run(state, chosen["policy"], chosen["placer"], name=name, timeline=timeline)
    for text in found.assumptions:
        click.echo(f"assumed: {text}", err=True)
    return found.simulation


def _live() -> Any:
    from roost.cli.connection import connect

    with connect() as client:
        return client.state()


def _read(source: str) -> Any:
    import json

    from roost.errors import InvalidSpec
    from roost.files import load

    text = load(source).text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        why = getattr(error, "msg", "it is nested too deeply")
        raise InvalidSpec(f"{source} is not the state of a cluster: {why}") from None
