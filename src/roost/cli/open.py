"""``roost open``: the pages of a server, in a browser that is logged in."""

from __future__ import annotations

import os
import sys

import click

from roost.cli import connection
from roost.cli.parameter_types import Verb, option
from roost.errors import InvalidSpec

#: What says that there is a screen for a browser.
_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


@click.command(
    "open",
    cls=Verb,
    epilog="""\b
Examples:
  roost open
  roost open --print
  roost open --on lab""",
)
@option("--print", "only_print", section="Run", is_flag=True, help="Print the link; open nothing.")
def open_pages(*, only_print: bool) -> None:
    """Open the server's pages in a browser that is logged in as you.

    The link works once, for 15 minutes. Where there is no screen, it is printed.
    """
    if click.get_current_context().find_root().obj:
        raise InvalidSpec("a cluster has its pages at its operator; without --context, a server's")
    with connection.connect() as client:
        address = client.url + client.login_link()
    screen = sys.platform == "darwin" or any(map(os.environ.get, _SCREENS))
    if only_print or not screen:
        click.echo(address)
        return
    import webbrowser

    if webbrowser.open(address):
        click.echo("opened in your browser; roost open --print prints a link instead")
    else:
        click.echo(address)
