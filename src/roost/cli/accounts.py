"""``roost users``, ``roost tokens`` and ``roost whoami``: the users of the server."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import click

from roost.cli import connection
from roost.cli.output import print_table
from roost.cli.parameter_types import NO_BOUND, ByteSize, Duration, Noun, Verb, option
from roost.errors import InvalidSpec

_ROLES = click.Choice(["admin", "user", "viewer"])
_F = TypeVar("_F", bound=Callable[..., Any])
#: The words of bounds on the command line, and in the API.
_BOUNDS = {"jobs": "jobs", "disk": "disk_bytes", "disk_max": "disk_max_bytes"}


class _Bound(click.ParamType[str | int]):
    """A number, or the words none and default."""

    def __init__(self, kind: click.ParamType[int], none: int) -> None:
        self._kind, self._none = kind, none
        self.name = kind.name

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | int:
        """The number, or ``default``."""
        if value == "default":
            return str(value)
        return self._none if value == "none" else self._kind.convert(value, param, ctx)


def _bound_options(command: _F) -> _F:
    """The options that bound what a user may have."""
    size = _Bound(ByteSize(), NO_BOUND)
    for name, kind, metavar, text in (
        ("--disk-max", size, "SIZE", "Stop jobs that still write beyond that."),
        ("--disk", size, "SIZE", "The most space; beyond it, nothing new: 200Gi, none, default."),
        ("--jobs", _Bound(click.IntRange(0), 10**9), "N", "The most jobs that are not over."),
    ):
        command = option(name, section="Limits", type=kind, metavar=metavar, help=text)(command)
    return command


def _bounds_given(given: dict[str, Any]) -> dict[str, int | None]:
    """The bounds among options, which are taken out; None: that of all users."""
    told = {word: given.pop(name) for name, word in _BOUNDS.items()}
    return {
        word: None if value == "default" else value
        for word, value in told.items()
        if value is not None
    }


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
    for line in _use(me.get("bounds") or {}, me.get("use") or {}):
        click.echo(line)
    for mount in me.get("mounts") or ():
        click.echo(_mount_line(mount))


def _use(bounds: Mapping[str, Any], use: Mapping[str, Any]) -> Iterator[str]:
    """What somebody has, of what there may be."""
    from roost.jobs.amounts import shown_bytes

    if not use:
        return
    yield connection.fact("jobs", f"{use['jobs']} not over, of at most {bounds['jobs']}")
    parts = {
        "runs": use["runs_bytes"],
        "snapshots": use["snapshots_bytes"],
        "sent folders": use["sent_bytes"],
    }
    told = ", ".join(f"{name} {shown_bytes(size)}" for name, size in parts.items() if size)
    disk = shown_bytes(use["disk_bytes"]) + (f" ({told})" if told else "")
    most = _bound(bounds.get("disk_bytes"))
    disk += f", of at most {most}" if most else ", without a bound"
    if last := _bound(bounds.get("disk_max_bytes")):
        disk += f"; jobs that write are stopped at {last}"
    yield connection.fact("disk", disk)
    yield connection.fact("tokens", f"{use['tokens']} valid, of at most {bounds['tokens']}")


def _bound(size: int | None) -> str:
    from roost.jobs.amounts import shown_bytes

    return "" if size is None or size >= NO_BOUND else shown_bytes(size)


def _mount_line(mount: Mapping[str, Any]) -> str:
    from roost.client.formatting import clean

    queues = ", ".join(map(clean, mount.get("queues") or ()))
    notes = ["read-only"] if mount.get("readonly") else []
    notes += [f"in queue {queues}"] if queues else []
    more = f" ({'; '.join(notes)})" if notes else ""
    where = f"{clean(mount.get('name', ''))}: {clean(mount.get('path', ''))}{more}"
    return connection.fact("mount", where)


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
@_bound_options
@connection.output_option
def add_user(name: str, role: str, unix: str, output: str, **given: Any) -> None:
    """Let the user NAME in; a token is made with roost tokens add."""
    bounds = {word: most for word, most in _bounds_given(given).items() if most is not None}
    with connection.connect() as client:
        _print_users([client.add_user(name, role, unix, bounds)], output)


@users.command(
    "set",
    cls=Verb,
    epilog="""\b
Examples:
  roost users set ada --role admin
  roost users set ada --unix ada
  roost users set ada --disk 200Gi --jobs 500
  roost users set ada --disk default
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
@_bound_options
@connection.output_option
def set_user(name: str, output: str, **given: Any) -> None:
    """Change the user NAME."""
    bounds = _bounds_given(given)
    settings = {key: value for key, value in given.items() if value is not None} | bounds
    if not settings:
        raise InvalidSpec("nothing to change: give an option such as --role, --disk or --inactive")
    with connection.connect() as client:
        _print_users([client.set_user(name, settings)], output)


@users.command(
    "delete",
    cls=Verb,
    epilog="""\b
Examples:
  roost users delete ada
  roost users delete ada --cancel-jobs""",
)
@click.argument("name")
@option("--cancel-jobs", section="Change", is_flag=True, help="Cancel the jobs that are not over.")
def delete_user(name: str, *, cancel_jobs: bool) -> None:
    """Forget the user NAME, with all tokens; jobs that are over stay, under that name."""
    from roost.client.formatting import clean

    with connection.connect() as client:
        client.delete_user(name, cancel_jobs=cancel_jobs)
    click.echo(f"{clean(name)}  deleted")


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
                **_own_bounds(user),
            }
            for user in found
        ]
    )


def _own_bounds(user: Mapping[str, Any]) -> dict[str, str]:
    jobs, sizes = user.get("jobs"), [user.get("disk_bytes"), user.get("disk_max_bytes")]
    disk = ["default" if size is None else _bound(size) or "none" for size in sizes]
    return {
        "jobs": "default" if jobs is None else str(jobs),
        "disk": disk[0],
        "stopped at": disk[1],
    }
