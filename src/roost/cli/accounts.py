"""``roost users``, ``roost tokens`` and ``roost whoami``: the users of the server."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import click

from roost.cli import connection
from roost.cli.output import print_table
from roost.cli.parameter_types import Duration, Noun, Verb, option
from roost.errors import InvalidSpec

_ROLES = click.Choice(["admin", "user", "viewer"])


@click.command(
    cls=Verb,
    epilog="""\b
Example:
  roost whoami""",
)
@connection.output_option
def whoami(output: str) -> None:
    """Say who the server takes you for."""
    from roost.client.formatting import clean, clock

    with connection.connect() as client:
        me, url = client.whoami(), client.url
    if connection.printed(me, output):
        return
    click.echo(f"{clean(me.get('user', ''))} ({clean(me.get('role', ''))}) at {clean(url)}")
    if me.get("expires_at"):
        click.echo(f"the token is valid until {clock(me['expires_at'])}")


@click.group(
    cls=Noun,
    epilog="""\b
Examples:
  roost users
  roost users add ada --role user --unix ada
  roost users set ada --inactive""",
)
def users() -> None:
    """List the users, or change them."""


@users.command("list", cls=Verb)
@connection.output_option
def list_users(output: str) -> None:
    """List the users (also without the word list)."""
    with connection.connect() as client:
        _print_users(client.users(), output)


@users.command(
    "add",
    cls=Verb,
    epilog="""\b
Examples:
  roost users add ada --unix ada
  roost users add grafana --role viewer""",
)
@click.argument("name")
@option(
    "--role", section="Change", type=_ROLES, default="user", show_default=True, help="May do what."
)
@option(
    "--unix",
    section="Change",
    metavar="ACCOUNT",
    default="",
    help="The Unix account that jobs run under, if root serves.",
)
@connection.output_option
def add_user(name: str, role: str, unix: str, output: str) -> None:
    """Let the user NAME in; a token is made with roost tokens add."""
    with connection.connect() as client:
        _print_users([client.add_user(name, role, unix)], output)


@users.command(
    "set",
    cls=Verb,
    epilog="""\b
Examples:
  roost users set ada --role admin
  roost users set ada --unix ada
  roost users set ada --inactive""",
)
@click.argument("name")
@option("--role", section="Change", type=_ROLES, help="May do what.")
@option(
    "--unix",
    section="Change",
    metavar="ACCOUNT",
    help="The Unix account that jobs run under, if root serves.",
)
@option("--active/--inactive", section="Change", default=None, help="May come in, or not any more.")
@connection.output_option
def set_user(name: str, output: str, **given: Any) -> None:
    """Change the user NAME."""
    settings = {key: value for key, value in given.items() if value is not None}
    if not settings:
        raise InvalidSpec("nothing to change: give --role, --unix, --active or --inactive")
    with connection.connect() as client:
        _print_users([client.set_user(name, settings)], output)


@click.group(
    cls=Noun,
    epilog="""\b
Examples:
  roost tokens
  roost tokens add --user ada --label laptop --expires 90d
  roost tokens revoke t3f9""",
)
def tokens() -> None:
    """List tokens, make or revoke them."""


@tokens.command("list", cls=Verb)
@option("--user", section="Which", metavar="NAME", default="", help="Of another user.")
@connection.output_option
def list_tokens(user: str, output: str) -> None:
    """List your tokens (also without the word list); what they say is not known any more."""
    from roost.client.formatting import ago, clean, clock, count

    with connection.connect() as client:
        found = client.tokens(user)
    if connection.printed(found, output):
        return
    now = connection.now()
    print_table(
        [
            {
                "token": clean(token.get("id", "")),
                "user": clean(token.get("user", "")),
                "label": clean(token.get("label", "")),
                "state": _state(token, now),
                "created": ago(token.get("created_at"), now),
                "used": ago(token.get("last_used_at"), now),
                "expires": clock(token.get("expires_at")) if token.get("expires_at") else "never",
            }
            for token in found
        ]
    )
    click.echo(count(len(found), "token"))


def _state(token: Mapping[str, Any], now: float) -> str:
    if token.get("revoked_at"):
        return "revoked"
    return "expired" if (token.get("expires_at") or math.inf) <= now else "valid"


@tokens.command(
    "add",
    cls=Verb,
    epilog="""\b
Examples:
  roost tokens add --label laptop --expires 90d
  roost tokens add --user ada --label cluster""",
)
@option("--user", section="Change", metavar="NAME", default="", help="For another user.")
@option("--label", section="Change", metavar="TEXT", default="", help="To tell it from others.")
@option("--expires", section="Change", type=Duration(), help="Valid for so long; for ever without.")
@connection.output_option
def add_token(user: str, label: str, expires: float | None, output: str) -> None:
    """Make a token. It is printed this once: keep it."""
    if expires is not None and expires <= 0:
        raise InvalidSpec("--expires: a token is valid for some time, such as 12h or 90d")
    with connection.connect() as client:
        made = client.add_token(user, label, expires)
    if not connection.printed(made, output):
        click.echo(made["secret"])
        connection.note("shown this once; use it as ROOST_TOKEN")


@tokens.command("revoke", cls=Verb)
@click.argument("ids", metavar="TOKEN...", nargs=-1, required=True)
@click.pass_context
def revoke(ctx: click.Context, ids: tuple[str, ...]) -> None:
    """Make tokens worthless, at once; by their ids, not by what they say."""
    with connection.connect() as client:

        def act(token: str) -> str:
            client.revoke_token(token)
            return f"{token}  revoked"

        ctx.exit(connection.each_of(ids, act))


def _print_users(found: list[dict[str, Any]], output: str) -> None:
    from roost.client.formatting import clean

    if connection.printed(found, output):
        return
    print_table(
        [
            {
                "user": clean(user.get("name", "")),
                "role": clean(user.get("role", "")),
                "unix": clean(user.get("unix", "")) or "-",
                "active": "yes" if user.get("active", True) else "no",
            }
            for user in found
        ]
    )
