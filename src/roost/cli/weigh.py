"""``roost weigh`` and ``roost offers``: one workflow on several targets, owned and rented."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roost.cli import connection
from roost.cli.output import print_csv, print_json, print_table
from roost.cli.parameter_types import Number, OutFile, Verb, option
from roost.errors import InvalidSpec

if TYPE_CHECKING:
    from roost.usage.offers import OfferList
    from roost.usage.weigh import ComparisonSetting, MeasuredRun, WeighedRun

_MONTH_S = 30 * 86_400.0


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost weigh --check
  roost weigh train.yaml --on here,cloud:H100 --kind A100 --use 0.4 --offline
  roost weigh train.yaml --on here,cloud:H100,cloud:A100-80GB --measured resnet-x7k2p
  roost weigh train.yaml --on here,cloud:H100 --own price=250000,kw=8 --report weigh.html""",
)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@option(
    "--on",
    "targets",
    section="Which",
    metavar="TARGET,...",
    default="here,cloud:H100",
    show_default=True,
    help="here, or cloud:KIND for the median offer of it; cloud:KIND-spot.",
)
@option("--measured", section="Which", metavar="JOB", help="The run that was measured here.")
@option("--offline", section="Which", is_flag=True, help="Ask no server; forecast all of it.")
@option("--kind", section="Which", metavar="KIND", default="", help="The GPUs here.")
@option(
    "--use",
    section="Costs",
    type=Number(1.0),
    metavar="PART",
    help="How much of this cluster is used; measured if a server is asked.",
)
@option(
    "--own",
    section="Costs",
    metavar="KEY=VALUE,...",
    default="",
    help="What an own node costs; see below.",
)
@option(
    "--offers",
    section="Costs",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Offers to use instead of those that ship: our csv, SkyPilot's or gpuhunt's.",
)
@option(
    "--speed",
    section="Costs",
    metavar="KIND=X,...",
    default="",
    help="How fast kinds are; V100 is 1.",
)
@option(
    "--egress",
    section="Costs",
    type=Number(),
    metavar="GB",
    default=0.0,
    help="Data that leaves the cloud, at 0.09 a GB.",
)
@option(
    "--carbon",
    section="Costs",
    type=Number(),
    metavar="G",
    default=475.0,
    show_default=True,
    help="Grams of CO2 for a kWh.",
)
@option("--report", section="Output", type=OutFile(), help="Write an HTML page with plots.")
@option(
    "-o",
    "--output",
    section="Output",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="How to print.",
)
@option(
    "--check", section="Run", is_flag=True, help="Work out the documented example, to the cent."
)
@click.pass_context
def weigh(
    ctx: click.Context, /, file: Path | None, output: str, *, check: bool, **given: Any
) -> None:
    """Compare what the job of FILE takes here and elsewhere: time, GPU use, cost, carbon.

    Here is what a run was measured to take, or else what the job file says (run_time). Elsewhere
    is a forecast: as many GPUs, by the speed of their kind. TCO is what the hours cost the owner
    of this cluster, at its use; TCS is what they cost who rents. With --own come price, gpus,
    nodes, fabric, rest, life_years, interest, maintenance, kw, load, pue, kwh, space, salary,
    nodes_per_person, least_people, software, other and availability; the page says where each
    default comes from.
    """
    if check:
        ctx.exit(_check())
    if file is None:
        raise InvalidSpec("give a job file, as in: roost weigh train.yaml --on here,cloud:H100")
    from roost.usage.weigh import break_even, ranked
    from roost.usage.weigh import weigh as compare

    run, assumed = _asked(file, given)
    targets = [name for name in given["targets"].split(",") if name]
    found = compare(run, targets, assumed)
    if output == "table":
        print_table([_row(one) for one in found])
        now = f" (now {100 * assumed.use:.0f} %)" if assumed.use else ""
        for kind in _kinds(targets):
            even = break_even(assumed, kind)
            if even is not None:
                told = f"from {100 * even:.0f} % use{now}" if even <= 1 else f"at no use{now}"
                click.echo(f"break-even against offers of {kind}: owning such a node pays {told}")
        if best := ranked(found):
            click.echo(f"cheapest: {best[0].target}")
    elif output == "csv":
        print_csv([_raw(one) for one in found])
    else:
        print_json([_raw(one) for one in found])
    _note_old(assumed.offers)
    if given["report"] is not None:
        from roost.usage.weigh_page import page

        text = page(file.stem, found, assumed, next(iter(_kinds(targets)), run.kind))
        Path(given["report"]).write_text(text, encoding="utf-8")
        click.echo(f"report: {given['report']}", err=output != "table")


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost offers
  roost offers catalog.csv
  roost offers catalog.csv -o json""",
)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@option(
    "-o",
    "--output",
    section="Output",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="How to print.",
)
def offers(file: Path | None, output: str) -> None:
    """List what others sell a GPU hour for: the list that ships, or a catalogue FILE.

    FILE is a csv of our own form (kind, price, currency, spot, dated, source), of SkyPilot or of
    gpuhunt. Csv output is in our own form, for roost weigh --offers.
    """
    found = _offers(file)
    rows = [
        {
            "kind": offer.kind,
            "price": f"{offer.micro / 1e6:.4f}",
            "currency": offer.currency,
            "spot": "yes" if offer.spot else "no",
            "dated": offer.dated.isoformat(),
            "source": offer.source,
        }
        for offer in found.offers
    ]
    if output == "json":
        print_json(rows)
    elif output == "csv":
        print_csv(rows, ("kind", "price", "currency", "spot", "dated", "source"))
    else:
        print_table(rows)
        _note_old(found)
    if found.unpriced:
        connection.note(f"note: {found.unpriced} rows have no price, or no GPU, and are left out")


def _asked(path: Path, given: dict[str, Any]) -> tuple[MeasuredRun, ComparisonSetting]:
    """The run that is weighed, and what is taken for granted."""
    from roost.cli.simulate_options import factors
    from roost.jobfile import parse
    from roost.settings import build
    from roost.traces.applications import KIND_SPEEDS
    from roost.usage.ownership import Ownership
    from roost.usage.weigh import ComparisonSetting, MeasuredRun

    try:
        file = parse(path.read_text(encoding="utf-8"), path.name).job
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSpec(f"{path} cannot be read: {error}") from None
    spec, use = file.spec("me"), given["use"]
    kind = given["kind"] or next(iter(spec.resources.kinds), "")
    run = None
    if not given["offline"]:
        with connection.connect() as client:
            run = _measured(client, given["measured"], file.document(), path.name)
            use = _use(client) if use is None else use
    if run is None:
        if spec.run_time_s is None or spec.training is not None:
            raise InvalidSpec(f"{path.name} says no run_time, and no run of it was measured")
        if not kind:
            raise InvalidSpec("on which GPUs would it run here? say --kind A100")
        gpus = spec.gpu_milli(spec.workers.min) / 1000
        run = MeasuredRun(kind, spec.run_time_s, gpus, measured=False)
    speeds = {"A100-80GB": KIND_SPEEDS["A100"], **KIND_SPEEDS, **factors("--speed", given["speed"])}
    own = build(Ownership, "--own", given["own"])
    egress, carbon = given["egress"], given["carbon"]
    return run, ComparisonSetting(
        own, _offers(given["offers"]), speeds, use or 0.0, egress, carbon_g=carbon
    )


def _measured(client: Any, name: str | None, document: Any, file: str) -> MeasuredRun | None:
    """The run that a server measured: that of a job, or the last one of the same workflow."""
    from roost.usage.weigh import MeasuredRun, check_same, digest

    if name:
        view = client.job(name).view
        check_same(document, client.job(name).document(), f"job {view.id} beside {file}")
    else:
        over = client.jobs(state="succeeded", name=str(document.get("name", "")), limit=50)
        same = (one for one in over if digest(client.job(one.id).document()) == digest(document))
        found = next(same, None)
        if found is None:
            return None
        view = found
    spells = [one for one in client.usage_spells(view.id) if one["what"] == "held"]
    if not spells or not view.ran_s:
        raise InvalidSpec(f"job {view.id} was not measured: it never ran here")
    row = client.usage("job", job=view.id).total
    measured = row.held - row.unmeasured
    busy = None if row.busy is None or measured <= 0 else row.busy / measured
    gpus = row.held / 1e6 / view.ran_s
    wait = None if view.started_at is None else view.started_at - view.submitted_at
    return MeasuredRun(spells[-1]["kind"], view.ran_s, gpus, wait, busy)


def _use(client: Any) -> float:
    """The part of what was in service that jobs held in the last month."""
    cluster = client.usage("user", since=time.time() - _MONTH_S).cluster
    if cluster is None or cluster.capacity <= cluster.out_of_service:
        return 0.0
    return float(cluster.held / (cluster.capacity - cluster.out_of_service))


def _offers(file: Path | None) -> OfferList:
    from roost.usage.offers import read_offers, shipped

    if file is None:
        return shipped()
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSpec(f"{file} cannot be read: {error}") from None
    return read_offers(lines, file.name, datetime.now(UTC).date())


def _note_old(found: OfferList) -> None:
    from roost.usage.offers import is_old

    today = datetime.now(UTC).date()
    if old := sorted({offer.kind for offer in found.offers if is_old(offer, today)}):
        connection.note(f"note: older than 90 days: offers of {', '.join(old)}")


def _kinds(targets: list[str]) -> list[str]:
    """The kinds of GPU that are to be rented on demand."""
    rented = [name.removeprefix("cloud:") for name in targets if name.startswith("cloud:")]
    return [kind for kind in rented if not kind.endswith("-spot")]


def _row(one: WeighedRun) -> dict[str, str]:
    from roost.client.formatting import span

    mark = "" if one.measured else "~"

    def money(cost: float | None) -> str:
        return "-" if cost is None else f"{cost:,.2f}"

    return {
        "target": one.target + (" (measured)" if one.measured else ""),
        "wait": "-" if one.wait_s is None else span(one.wait_s),
        "run": mark + span(one.run_s),
        "gpu": "-" if one.busy is None else f"{100 * one.busy:.0f}%",
        "units": "-" if one.units is None else f"{one.units:.3g}",
        "tco": money(one.tco),
        "tcs": money(one.tcs),
        "carbon": "-" if one.carbon_kg is None else f"{one.carbon_kg:.2g} kg",
        "why": one.why,
    }


def _raw(one: WeighedRun) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(one)


def _check() -> int:
    """The worked example of the documentation: what it must be, what it is; the exit status."""
    from roost.usage.ownership import EXAMPLE, Ownership

    own, rows, good = Ownership(), [], True
    found = {**own.items(), "total": own.total, "a GPU": own.total / own.gpus}
    found |= {f"an hour at {use} %": own.per_hour(use / 100) or 0.0 for use in (30, 50, 70, 90)}
    found |= {
        f"break-even against {offer:.2f}": 100 * (own.break_even(offer) or 0.0)
        for offer in (1.87, 2.89, 3.85, 6.98, 9.80)
    }
    for name, (wanted, digits) in EXAMPLE.items():
        same = round(found[name], digits) == wanted
        good &= same
        rows.append(
            {
                "what": name,
                "documented": f"{wanted:,.{max(digits, 0)}f}",
                "here": f"{found[name]:,.{max(digits, 0)}f}",
                "same": "yes" if same else "NO",
            }
        )
    print_table(rows)
    return 0 if good else 1
