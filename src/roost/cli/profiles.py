"""``roost profiles``: what was measured of applications."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from roost.cli import connection
from roost.cli.output import print_table
from roost.cli.parameter_types import Verb

_NONE = "nothing was measured yet: jobs that use roost.train tell of their steps"


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost profiles
  roost profiles resnet -o json""",
)
@click.argument("application", metavar="[APP]", required=False, default="")
@connection.output_option
def profiles(application: str, output: str) -> None:
    """Show what was measured of your applications, or of APP alone.

    An application is what a job file calls so, or else the name of the job. Step times are by
    workers and share; policies plan with them, and a share with less memory than was needed
    before is refused. Where batches are known, too, a second table says what a step is expected to
    take at other sizes.
    """
    with connection.connect() as client:
        found = client.profiles(application)
    if connection.printed(found, output):
        return
    if not found:
        click.echo(f"nothing is known of {application!r}" if application else _NONE)
        return
    rows = [row for profile in found for row in _rows(profile)]
    print_table(connection.fitted(rows, wide=output == "wide"))
    if predicted := [row for profile in found for row in _predicted(profile)]:
        click.echo()
        print_table(connection.fitted(predicted, wide=output == "wide"))
    for profile in found:
        if told := _costs(profile):
            click.echo(told)


def _rows(profile: dict[str, Any]) -> Iterator[dict[str, str]]:
    """A line for each size."""
    from roost.client.formatting import amount, clean, figure, mib, moment

    for size in profile.get("sizes") or [{}]:
        speed = size.get("speed")
        yield {
            "application": clean(profile.get("application", "")),
            "user": clean(profile.get("user", "")),
            "workers": str(size.get("workers", "-")),
            "share": amount(float(size["share"])) if "share" in size else "-",
            "step": moment(float(size["step_s"])) if "step_s" in size else "-",
            "speed": "-" if speed is None else f"{float(speed):.2f}x",
            "memory": mib(profile["memory_mib"]) if profile.get("memory_mib") else "-",
            "busy": "-" if profile.get("busy") is None else f"{100 * float(profile['busy']):.0f}%",
            "noise": "-" if profile.get("noise") is None else figure(float(profile["noise"])),
            "seen": str(size.get("count", "-")),
        }


def _predicted(profile: dict[str, Any]) -> Iterator[dict[str, str]]:
    """A line for each size of which something is foretold."""
    from roost.client.formatting import clean, figure, moment

    for model in profile.get("models") or []:
        for size in model.get("sizes") or []:
            measured = size.get("measured_s")
            yield {
                "application": clean(profile.get("application", "")),
                "user": clean(profile.get("user", "")),
                "kind": clean(model.get("kind", "")) or "-",
                "nodes": str(size.get("nodes", "-")),
                "workers": str(size.get("workers", "-")),
                "batch": str(size.get("local_batch", "-")),
                "predicted": f"{moment(float(size['step_s']))} ± {_percent(size['error'])}",
                "measured": "-" if measured is None else moment(float(measured)),
                "samples/s": figure(float(size["samples_per_s"])),
            }


def _percent(part: Any) -> str:
    return f"{100 * float(part):.0f}%"


def _costs(profile: dict[str, Any]) -> str:
    """The costs of disturbing it, in a line."""
    from roost.client.formatting import clean, moment

    costs = profile.get("costs") or {}
    told = [f"{clean(what)} {moment(float(cost['mean_s']))}" for what, cost in costs.items()]
    return f"{clean(profile.get('application', ''))}: {', '.join(told)}" if told else ""
