"""``roost usage``: who held how much of the cluster, and what that cost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from roost.cli import connection
from roost.cli.output import print_csv, print_json, print_table, print_yaml
from roost.cli.parameter_types import Duration, Verb, option

if TYPE_CHECKING:
    from roost.client import UsageRowView, UsageView

_GPU_HOUR = 3600 * 1_000_000
_DAY_S = 86_400.0
_NONE = "nothing was held in that time"


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost usage
  roost usage --by queue,day --since 7d
  roost usage --by label:team --since 30d -o csv
  roost usage --explain resnet-x7k2p
  roost usage --since 30d -o focus""",
)
@option(
    "--by",
    section="Which",
    metavar="KEY,...",
    default="user",
    show_default=True,
    help="Up to three of user, queue, application, label, label:KEY, node, job and day (UTC).",
)
@option(
    "--since",
    section="Which",
    type=Duration(),
    default="30d",
    show_default=True,
    help="Of that time.",
)
@option("--user", section="Which", metavar="NAME", default="", help="Of this user only.")
@option(
    "--explain",
    section="Which",
    metavar="JOB",
    shell_complete=connection.complete_jobs,
    help="From when to when a job waited, and held what on which node.",
)
@option(
    "--idle",
    section="Output",
    type=click.Choice(["apart", "shared"]),
    default="apart",
    show_default=True,
    help="Show what idle GPUs cost in a line of its own, or share it out by what was held.",
)
@option(
    "-o",
    "--output",
    section="Output",
    type=click.Choice(["table", "wide", "csv", "json", "yaml", "focus"]),
    default="table",
    show_default=True,
    help="How to print; focus is the FOCUS 1.2 cost format, a line for each job and day.",
)
def usage(  # noqa: PLR0913 - a verb takes its options
    by: str, since: float, user: str, explain: str | None, idle: str, output: str
) -> None:
    """Show who held how many GPU hours, how much of that was busy, wasted or lost, and its cost.

    Shares count as shares. Busy and wasted are of what was measured. Lost is work that had to be
    done again; what the scheduler or the machines lost is not charged. What has no price has no
    cost.
    """
    with connection.connect() as client:
        if explain is not None:
            _explain(client.usage_spells(explain), output)
            return
        keys = "job,user,queue" if output == "focus" else by
        begin = max(0.0, time.time() - since)
        found: UsageView | list[UsageView] = client.usage(keys, since=begin, user=user)
        if output == "focus":
            found = [client.usage(keys, **days) for days in _days(begin, user)]
    if isinstance(found, list):
        _print_focus(found)
    elif output == "json":
        print_json(dict(found.raw))
    elif output == "yaml":
        print_yaml(dict(found.raw))
    elif output == "csv":
        print_csv([_figures(row) for row in found.rows], _columns(found))
    else:
        _print(found, shared=idle == "shared", wide=output == "wide")


def _days(begin: float, user: str) -> list[dict[str, Any]]:
    """A request for every day, because a charge of FOCUS lies within one."""
    found, now = list[dict[str, Any]](), time.time()
    while begin < now:
        end = min(now, (begin // _DAY_S + 1) * _DAY_S)
        found.append({"since": begin, "until": end, "user": user})
        begin = end
    return found


def _print(found: UsageView, *, shared: bool, wide: bool) -> None:
    if found.total is None or not (found.rows or found.cluster):
        click.echo(_NONE)
        return
    cluster = found.cluster
    extra = cluster.idle_cost if shared and cluster and cluster.idle_cost else 0.0
    rows = [_row(found, row, extra, wide=wide) for row in found.rows]
    rows.append(_row(found, found.total, extra, wide=wide, name="total"))
    print_table(rows)
    if cluster is not None:
        cost = cluster.idle_cost
        told = (
            "" if cost is None or shared else f", {_money(cost, found.currency)} charged to nobody"
        )
        click.echo(
            f"idle {_hours(cluster.idle)}, out of service {_hours(cluster.out_of_service)} "
            f"of {_hours(cluster.capacity)} GPU hours{told}"
        )
    if found.total.unpriced and found.currency:
        connection.note(f"note: {_hours(found.total.unpriced)} GPU hours have no price")
    if found.old_prices:
        connection.note(f"note: older than 90 days: prices of {', '.join(found.old_prices)}")


def _row(
    found: UsageView, row: UsageRowView, extra: float, *, wide: bool, name: str = ""
) -> dict[str, str]:
    from roost.client.formatting import clean

    keys = {key: clean(row.keys.get(key, "")) or "-" for key in found.by}
    if name:
        keys = {key: name if key == found.by[0] else "" for key in found.by}
    told = {
        **keys,
        "jobs": str(row.jobs),
        "gpu-hours": _hours(row.held),
        "busy": _part(row.busy, row.held - row.unmeasured),
        "wasted": "-" if row.wasted is None else _hours(row.wasted),
        "lost": _hours(sum(row.lost.values())),
        "waiting": _hours(row.waiting),
    }
    if wide:
        told["grown"] = _hours(row.grown)
        told["lost by"] = (
            ", ".join(f"{who} {_hours(lost)}" for who, lost in row.lost.items()) or "-"
        )
        told["cpu-hours"] = f"{row.cpu_ms / 1000 / 3.6e6:,.1f}"
        told["GiB-hours"] = f"{row.memory_mib_ms / 1024 / 3.6e6:,.1f}"
    cost = row.cost
    if cost is not None and extra and found.total is not None and found.total.held:
        cost += extra * row.held / found.total.held
    told["cost"] = "no price" if cost is None else _money(cost, found.currency)
    return told


def _columns(found: UsageView) -> list[str]:
    return [*found.by, *_FIGURES]


_FIGURES = (
    *("jobs", "held_gpu_h", "grown_gpu_h", "busy_gpu_h", "wasted_gpu_h", "unmeasured_gpu_h"),
    *("lost_job_gpu_h", "lost_user_gpu_h", "lost_scheduler_gpu_h", "lost_platform_gpu_h"),
    *("waiting_gpu_h", "cpu_h", "memory_gib_h", "unpriced_gpu_h", "cost"),
)


def _figures(row: UsageRowView) -> dict[str, Any]:
    """A row for programs: hours, with all digits."""

    def hours(amount: int | None) -> str:
        return "" if amount is None else f"{amount / _GPU_HOUR:.9f}"

    lost = {
        f"lost_{who}_gpu_h": hours(row.lost.get(who, 0))
        for who in ("job", "user", "scheduler", "platform")
    }
    return {
        **row.keys,
        "jobs": row.jobs,
        "held_gpu_h": hours(row.held),
        "grown_gpu_h": hours(row.grown),
        "busy_gpu_h": hours(row.busy),
        "wasted_gpu_h": hours(row.wasted),
        "unmeasured_gpu_h": hours(row.unmeasured),
        **lost,
        "waiting_gpu_h": hours(row.waiting),
        "cpu_h": f"{row.cpu_ms / 1000 / 3.6e6:.6f}",
        "memory_gib_h": f"{row.memory_mib_ms / 1024 / 3.6e6:.6f}",
        "unpriced_gpu_h": hours(row.unpriced),
        "cost": "" if row.cost is None else f"{row.cost:.6f}",
    }


def _print_focus(days: list[UsageView]) -> None:
    from roost.usage.focus import COLUMNS, charges

    print_csv([charge for day in days for charge in charges(day)], COLUMNS)


def _explain(spells: list[dict[str, Any]], output: str) -> None:
    from roost.client.formatting import clean, clock, moment

    if output in ("json", "yaml"):
        connection.printed(spells, output)
        return
    if output == "csv":
        print_csv(spells, list(spells[0]) if spells else ["begin", "end", "what"])
        return
    now = time.time()
    rows = [
        {
            "from": clock(spell["begin"]),
            "for": moment((now if spell["end"] is None else spell["end"]) - spell["begin"]),
            "what": clean(spell["what"]),
            "attempt": str(spell["attempt"]),
            "node": clean(spell["node"]) or "-",
            "kind": clean(spell["kind"]) or "-",
            "gpus": f"{spell['gpus']:g}",
            "gpu-hours": _hours(spell["held"]),
            "busy": _part(spell["busy"], spell["held"]),
            "lost": f"{_hours(spell['lost'])} by {clean(spell['blame'])}" if spell["lost"] else "-",
        }
        for spell in spells
    ]
    print_table(rows)
    if not rows:
        click.echo(_NONE)


def _hours(amount: int) -> str:
    hours = amount / _GPU_HOUR
    return f"{hours:,.1f}" if hours >= 10 or not hours else f"{hours:.3g}"  # noqa: PLR2004 - digits


def _part(busy: int | None, measured: int) -> str:
    return "-" if busy is None or measured <= 0 else f"{100 * busy / measured:.0f}%"


def _money(cost: float, currency: str) -> str:
    return f"{cost:,.2f} {currency}".rstrip()
