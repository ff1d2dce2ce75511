"""``roost learn``: training the networks of learnt policies."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roost.cli.output import print_table
from roost.cli.parameter_types import Duration, OutFile
from roost.errors import InvalidSpec

if TYPE_CHECKING:
    from roost.learn.evolve import Generation
    from roost.learn.slots import SlotWorld
    from roost.policies.kit.networks import Network

#: Of each sort of job that is drawn there are few in a trace, so many sorts are needed.
_SORTS = 24


@click.group()
def learn() -> None:
    """Train the networks of learnt policies."""


@learn.command(
    epilog="""\b
Examples:
  roost learn dl2 --seconds 300 --seed 0 --out weights.json
  roost learn dl2 --inputs own --data DL2 --nodes 96 --out weights.json --curve curve.csv
  roost policies dl2"""
)
@click.option("--out", required=True, type=OutFile(), help="Write the network here, as JSON.")
@click.option(
    "--inputs",
    type=click.Choice(["estimates", "own"]),
    default="estimates",
    show_default=True,
    help="What the network sees: Roost's estimates, or what DL2 shows its own.",
)
@click.option("--seconds", type=Duration(), default=300.0, show_default=True, help="CPU time.")
@click.option("--generations", type=click.IntRange(0), help="So many, in place of --seconds.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Train on DL2's table, which lies there (config_speed.txt), not on sorts drawn at random.",
)
@click.option("--nodes", default="12,24", show_default=True, help="Sizes of clusters, e.g. 96,12.")
@click.option("--curve", type=OutFile(), help="Write how it went here, as csv.")
def dl2(  # noqa: PLR0913 - a verb takes its options
    out: Path,
    inputs: str,
    seconds: float,
    generations: int | None,
    seed: int,
    data: Path | None,
    nodes: str,
    curve: Path | None,
) -> None:
    """Train a network for the policy dl2, and say what it is worth on traces it never saw.

    It plays many short traces in a world of slots, side by side, on one core. A seed and a number
    of generations give the same network again.
    """
    from roost.files import save
    from roost.learn.training import Recipe, train
    from roost.policies.kit.parameter_servers.learned import Inputs

    recipe = Recipe(Inputs(inputs), seed, seconds, generations)
    worlds = _worlds(data, nodes, seed)
    found = train(worlds, recipe, _say)
    save(out, json.dumps(found.network.data()) + "\n")
    if curve is not None:
        rows = [",".join(f"{value:.6g}" for value in one) for one in found.curve]
        save(curve, "\n".join(["generation,cpu_s,candidates,chosen,best", *rows, ""]))
    _report(worlds, found.network, seed)
    click.echo(f"written: {out}; use it as dl2:inputs={inputs},weights={out}")


def _worlds(data: Path | None, nodes: str, seed: int) -> list[SlotWorld]:
    from roost.learn.slots import SlotWorld
    from roost.learn.sorts import draw_sorts, read_sorts

    sorts = draw_sorts(seed, _SORTS) if data is None else read_sorts(data)
    counts = [part.strip() for part in nodes.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= 10_000 for part in counts):  # noqa: PLR2004
        raise InvalidSpec(f"--nodes takes numbers from 1 to 10000 such as 96,12, not {nodes!r}")
    return [SlotWorld(sorts, int(part)) for part in counts]


def _say(generation: Generation) -> None:
    click.echo(
        f"generation {generation.number}, {generation.cpu_s:.0f} CPU s: candidates "
        f"{generation.candidates:.2f} slots, now {generation.chosen:.2f}, "
        f"best {generation.best:.2f}",
        err=True,
    )


def _report(worlds: Sequence[SlotWorld], network: Network, seed: int) -> None:
    from roost.learn.comparison import compare, draw_tests
    from roost.learn.training import decider

    rows = []
    for world in worlds:
        tests = draw_tests(world, seed)
        learnt = {"dl2": decider(world, [network], len(tests))}
        rows += compare(world, tests, learnt)
    shown: dict[str, Callable[[float], str]] = {
        "mean_jct": "{:.2f}".format,
        "makespan": "{:.1f}".format,
        "to_optimus": "{:.3f}".format,
        "to_drf": "{:.3f}".format,
        "to_lookahead": "{:.3f}".format,
    }
    print_table(
        [
            {
                "nodes": str(row.nodes),
                "policy": row.policy,
                **{name: form(getattr(row, name)) for name, form in shown.items()},
            }
            for row in rows
        ]
    )
