"""``roost templates``: job files with blanks."""

from __future__ import annotations

import re
from pathlib import Path

import click

from roost.cli import connection
from roost.cli.parameter_types import Noun, Verb
from roost.errors import InvalidSpec

_BLANK = re.compile(r"\{\{\s*([a-z][a-z0-9_]{0,40})\s*\}\}")


@click.group(
    cls=Noun,
    epilog="""\b
Examples:
  roost templates
  roost templates fill pytorch script=train.py gpus=2
  roost templates set birds birds.yaml --default rate=0.1
  roost templates delete birds""",
)
def templates() -> None:
    """List templates, fill one in, or change them."""


@templates.command("list", cls=Verb)
@connection.output_option
def list_templates(output: str) -> None:
    """List the templates (also without the word list)."""
    from roost.cli.output import print_table

    with connection.connect() as client:
        found = client.templates()
    if connection.printed(found, output):
        return
    print_table(
        [
            {
                "NAME": one["name"],
                "TITLE": one.get("title", ""),
                "BLANKS": " ".join(f"{b['name']}={b['default']}" for b in one.get("blanks", ())),
                "BY": one.get("author") or "roost",
                "JOBS": str(one.get("jobs", 0)),
            }
            for one in found
        ]
    )


@templates.command(
    "fill",
    cls=Verb,
    epilog="""\b
Examples:
  roost templates fill hello steps=3
  roost templates fill pytorch script=train.py gpus=2""",
)
@click.argument("template")
@click.argument("values", nargs=-1, metavar="[BLANK=VALUE]...")
def fill(template: str, values: tuple[str, ...]) -> None:
    """Print the job file of a template."""
    with connection.connect() as client:
        text = client.fill_template(template, _pairs(values))
    click.echo(text, nl=False)


@templates.command(
    "set",
    cls=Verb,
    epilog="""\b
FILE is a job file, also one of another system; {{rate}} in it is a blank.
\b
Example:
  roost templates set birds birds.yaml --title Birds --default rate=0.1""",
)
@click.argument("template")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--title", default="", help="What it is called in lists.")
@click.option("--description", default="", help="What it is for.")
@click.option(
    "--default", "defaults", multiple=True, metavar="BLANK=VALUE", help="What a blank is by itself."
)
def set_template(
    template: str, file: Path, title: str, description: str, defaults: tuple[str, ...]
) -> None:
    """Keep a job file as a template."""
    from roost import files

    text, given = files.load(file).text, _pairs(defaults)
    names = dict.fromkeys([*_BLANK.findall(text), *given])
    settings = {
        "text": text,
        "title": title,
        "description": description,
        "blanks": [{"name": name, "default": given.get(name, "")} for name in names],
    }
    with connection.connect() as client:
        client.set_template(template, settings)
    click.echo(f"{template}  is kept")


@templates.command(
    "delete",
    cls=Verb,
    epilog="""\b
Example:
  roost templates delete birds""",
)
@click.argument("template")
def delete(template: str) -> None:
    """Forget a template."""
    with connection.connect() as client:
        client.delete_template(template)
    click.echo(f"{template}  is gone")


def _pairs(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidSpec(f"expected BLANK=VALUE, found {text[:80]!r}")
        found[name] = value
    return found
