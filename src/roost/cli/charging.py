"""``roost prices`` and ``roost budgets``: what a GPU hour costs, and who may use how much."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from roost.cli import connection
from roost.cli.output import print_table
from roost.cli.parameter_types import Noun, Verb, option
from roost.errors import InvalidSpec


@click.group(
    cls=Noun,
    epilog="""\b
Examples:
  roost prices
  roost prices set A100-80GB 2.30 USD --source "our TCO"
  roost prices import prices.csv""",
)
def prices() -> None:
    """List what GPU hours cost, or add prices."""


@prices.command("list", cls=Verb)
@connection.output_option
def list_prices(output: str) -> None:
    """List the prices (also without the word list)."""
    with connection.connect() as client:
        _show_prices(client.prices(), output)


@prices.command(
    "set",
    cls=Verb,
    epilog="""\b
Examples:
  roost prices set A100-80GB 2.30 USD
  roost prices set '*' 1.10 EUR --from 2026-01-01 --source "our TCO" """,
)
@click.argument("kind")
@click.argument("price")
@click.argument("currency")
@option("--from", "since", section="Change", metavar="DAY", help="From that day on, UTC; today.")
@option("--source", section="Change", metavar="TEXT", default="", help="Where it comes from.")
@connection.output_option
def set_price(kind: str, price: str, currency: str, output: str, **given: Any) -> None:
    """Let a GPU hour of KIND (* for all others) cost PRICE from a day on.

    A new price never alters the past: it begins today at the earliest. The first one of a kind may
    begin earlier.
    """
    since = given["since"] or datetime.now(UTC).date().isoformat()
    line = {
        "kind": kind,
        "price": price,
        "currency": currency.upper(),
        "since": since,
        "source": given["source"],
    }
    with connection.connect() as client:
        _show_prices(client.add_prices([line]), output)


@prices.command(
    "import",
    cls=Verb,
    epilog="""\b
Examples:
  roost prices import prices.csv""",
)
@click.argument("file", type=click.Path(path_type=Path))
@connection.output_option
def import_prices(file: Path, output: str) -> None:
    """Add the prices of a csv FILE with the columns kind, price, currency, from and source."""
    from roost.usage.prices import read_prices

    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSpec(f"{file} cannot be read: {error}") from None
    found = read_prices(text.splitlines(), file.name).prices
    lines = [
        {
            "kind": price.kind,
            "price": price.row()["price"],
            "currency": price.currency,
            "since": price.since.isoformat(),
            "source": price.source,
        }
        for price in found
    ]
    with connection.connect() as client:
        _show_prices(client.add_prices(lines), output)


@click.group(
    cls=Noun,
    epilog="""\b
Examples:
  roost budgets
  roost budgets set vision 500 GPUh --every month --then hold
  roost budgets set ada 1200 USD --of user --then suspend
  roost budgets delete vision""",
)
def budgets() -> None:
    """List budgets and how they stand, or change them."""


@budgets.command("list", cls=Verb)
@connection.output_option
def list_budgets(output: str) -> None:
    """List the budgets (also without the word list)."""
    with connection.connect() as client:
        _show_budgets(client.budgets(), output)


_of = option(
    "--of",
    "subject",
    section="Change",
    type=click.Choice(["queue", "user"]),
    default="queue",
    show_default=True,
    help="Whose NAME it is.",
)


@budgets.command(
    "set",
    cls=Verb,
    epilog="""\b
Examples:
  roost budgets set vision 500 GPUh --every month --then hold
  roost budgets set ada 40 GPUh --of user --every week --then tell""",
)
@click.argument("name")
@click.argument("amount")
@click.argument("unit", default="GPUh")
@_of
@option(
    "--every",
    section="Change",
    type=click.Choice(["day", "week", "month", "year", "ever"]),
    default="month",
    show_default=True,
    help="For how long it lasts, UTC; weeks begin on Mondays.",
)
@option(
    "--then",
    section="Change",
    type=click.Choice(["tell", "hold", "suspend"]),
    default="hold",
    show_default=True,
    help="Beyond it: only tell, hold new jobs, or suspend running ones, too.",
)
@option(
    "--growth-is-free",
    section="Change",
    is_flag=True,
    help="Workers beyond the fewest of an elastic job, on idle GPUs, do not count.",
)
@connection.output_option
def set_budget(name: str, amount: str, unit: str, subject: str, output: str, **given: Any) -> None:
    """Let the queue or user NAME use AMOUNT GPUh, or of a currency, in a period.

    A job that does not fit into what is left waits before it starts, and says so; jobs that run
    count with what they are expected to use. A budget that is lower than what is used kills
    nothing.
    """
    settings = {"amount": amount, "unit": unit, **given}
    with connection.connect() as client:
        _show_budgets([client.set_budget(subject, name, settings)], output)


@budgets.command(
    "delete",
    cls=Verb,
    epilog="""\b
Example:
  roost budgets delete vision""",
)
@click.argument("name")
@_of
def delete_budget(name: str, subject: str) -> None:
    """Take the budget of NAME away; what waited for it goes on."""
    with connection.connect() as client:
        client.delete_budget(subject, name)
    click.echo(f"{subject} {name}  has no budget now")


def _show_prices(found: list[dict[str, Any]], output: str) -> None:
    from roost.client.formatting import clean

    if connection.printed(found, output):
        return
    print_table(
        [
            {
                "kind": clean(price["kind"]),
                "gpu-hour": f"{price['price']} {clean(price['currency'])}",
                "from": clean(price["since"]) + (" (old)" if price["old"] else ""),
                "source": clean(price["source"]) or "-",
            }
            for price in found
        ]
    )
    if not found:
        click.echo("nothing has a price; set one with: roost prices set KIND PRICE CURRENCY")


def _show_budgets(found: list[dict[str, Any]], output: str) -> None:
    from roost.client.formatting import clean
    from roost.usage.budgets import figure

    if connection.printed(found, output):
        return

    def amount(value: float) -> str:
        return figure(round(value * 1_000_000))

    print_table(
        [
            {
                "name": clean(one["name"]),
                "of": clean(one["subject"]),
                "budget": f"{amount(one['amount'])} {clean(one['unit'])}",
                "every": clean(one["every"]),
                "used": amount(one["used"]),
                "expected": amount(one["committed"]),
                "left": amount(one["left"]),
                "then": clean(one["then"]),
                "held": str(len(one["held"])),
            }
            for one in found
        ]
    )
    if not found:
        click.echo("no budgets; set one with: roost budgets set QUEUE 500 GPUh")
