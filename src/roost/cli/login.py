"""``roost login``, ``roost logout`` and ``roost servers``: servers on other machines, by name."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from roost.cli import connection
from roost.cli.output import print_table
from roost.cli.parameter_types import Noun, Verb, option
from roost.errors import Conflict, InvalidSpec, NotFound

if TYPE_CHECKING:
    from roost.client.logins import Login, LoginFile

_MOST_TOKEN = 4096
#: How long a server that does not answer is asked again, in seconds.
_PATIENCE_S = 2.0


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost login https://gpu.example.org:8610
  roost login https://10.0.0.5:8610 --name lab --ca ca.pem
  roost login https://10.0.0.5:8610 --name lab --token-file token.txt""",
)
@click.argument("url")
@option("--name", section="Which", metavar="NAME", help="What to call it.  [default: its host]")
@option(
    "--token-file",
    section="Run",
    metavar="FILE",
    help="Read the token there; - is standard input.  [default: asked for]",
)
@option(
    "--ca",
    section="Run",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The CA, or the certificate, to trust there; kept with the login.",
)
@option(
    "--default/--no-default",
    section="Change",
    default=None,
    help="Whether it is meant where no server is named; the first one is.",
)
def login(
    url: str, name: str | None, token_file: str | None, ca: Path | None, *, default: bool | None
) -> None:
    """Log in to the server at URL: ask for the token, try it, and keep it for your commands.

    Address, token and CA are kept in a file that only you can read. Tokens are made with
    roost tokens add, by an administrator or by yourself.
    """
    from roost.client import logins
    from roost.client.endpoints import is_loopback
    from roost.client.formatting import clean

    address = url.rstrip("/")
    loopback = is_loopback(address)
    called = logins.checked_name(name or urlsplit(address).hostname or "")
    known = logins.read().servers.get(called)
    _refuse_other(called, known, address)
    token = _token(token_file, address)
    made = _tried(address, token, ca, known)
    if address.startswith("http:") and not loopback:
        connection.note("warning: without TLS, anyone on the way can read the token")
    with logins.changing() as kept:
        _refuse_other(called, kept.servers.get(called), address)
        kept.add(called, made, default=default)
        usual = kept.default
    click.echo(f"logged in to {called} ({address}) as {clean(made.user)}")
    if usual == called:
        click.echo("It is used where no other server is named.  Next: roost list")
    else:
        click.echo(f"Next: roost list --on {called} · roost servers use {called}")


def _refuse_other(name: str, known: Login | None, url: str) -> None:
    """Refuse a name that another server has."""
    if known is not None and known.url != url:
        raise Conflict(
            f"{name!r} is {known.url} already; choose another --name, or first: roost logout {name}"
        )


def _token(file: str | None, url: str) -> str:
    """The token: from a file, from standard input, or from somebody who types it unseen."""
    if file is not None and file != "-":
        from roost.files import load

        found = load(Path(file).expanduser(), _MOST_TOKEN).text
    elif file is None and connection.on_terminal():
        try:
            found = click.prompt(f"Token for {url}", hide_input=True, err=True)
        except click.Abort:
            raise KeyboardInterrupt from None
    else:
        found = sys.stdin.read(_MOST_TOKEN) if sys.stdin else ""
    token: str = found.strip()
    if not token:
        raise InvalidSpec("there is no token: type it, or give it by --token-file or a pipe")
    return token


def _tried(url: str, token: str, ca: Path | None, known: Login | None) -> Login:
    """A login that the server has accepted; a CA that was given earlier goes on to count."""
    from roost.client import Client
    from roost.client.certificates import TrustedCertificates, from_file
    from roost.client.logins import Login

    trusted = TrustedCertificates(known.ca if known is not None else "")
    if file := ca or os.environ.get("ROOST_CA"):
        trusted = from_file(file)
    with Client(url, token, ca=trusted, patience=_PATIENCE_S) as client:
        caller = client.whoami()
    return Login(url, token, trusted.text, str(caller.get("user", "")))


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost logout
  roost logout lab --revoke""",
)
@click.argument("name", required=False, shell_complete=connection.complete_servers)
@option("--revoke", section="Run", is_flag=True, help="Make the token worthless, too.")
def logout(name: str | None, *, revoke: bool) -> None:
    """Forget the server NAME, or the default one, with its token."""
    from roost.client import Client, logins

    kept = logins.read()
    named = name or kept.default
    if not named:
        raise NotFound(
            "you are not logged in" if not kept.servers else "which one? roost servers lists them"
        )
    kept.named(named)
    if revoke:
        with Client(on=named, patience=_PATIENCE_S) as client:
            client.revoke_token(str(client.whoami()["token"]))
    with logins.changing() as kept:
        gone = kept.remove(named)
    click.echo(f"logged out of {named} ({gone.url})")
    if kept.default:
        click.echo(f"where none is named, commands go to {kept.default} now")


@click.group(
    cls=Noun,
    epilog="""\b
Examples:
  roost servers
  roost servers use lab
  roost list --on lab""",
)
def servers() -> None:
    """List the servers you are logged in to, or choose the one that is meant by default."""


@servers.command("list", cls=Verb)
@connection.output_option
def list_servers(output: str) -> None:
    """List the servers (also without the word list); tokens are not shown."""
    from roost.client import logins

    kept = logins.read()
    rows = _rows(kept)
    if connection.printed(rows, output):
        return
    if not rows:
        click.echo("no logins; roost login URL makes one")
        return
    print_table([{key: _cell(value) for key, value in row.items()} for row in rows])


def _rows(kept: LoginFile) -> list[dict[str, str | bool]]:
    return [
        {
            "name": name,
            "url": one.url,
            "user": one.user,
            "own_ca": bool(one.ca),
            "default": name == kept.default,
        }
        for name, one in sorted(kept.servers.items())
    ]


def _cell(value: str | bool) -> str:  # noqa: FBT001 - a cell of a row
    from roost.client.formatting import clean

    if isinstance(value, bool):
        return "yes" if value else "-"
    return clean(value) or "-"


@servers.command("use", cls=Verb)
@click.argument("name", shell_complete=connection.complete_servers)
def use(name: str) -> None:
    """Let NAME be meant where no server is named."""
    from roost.client import logins

    with logins.changing() as kept:
        kept.named(name)
        kept.default = name
    click.echo(f"where none is named, commands go to {name} now")
