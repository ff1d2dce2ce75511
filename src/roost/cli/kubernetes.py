"""``roost kubernetes``: what an administrator of a cluster needs before and after everything."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from roost.cli.parameter_types import Verb, option
from roost.errors import InvalidSpec

if TYPE_CHECKING:
    from roost.kubernetes.client.api import Api

T = TypeVar("T")


@click.group(
    epilog="""\b
Examples:
  roost kubernetes crds
  roost kubernetes check
  roost kubernetes release --yes"""
)
def kubernetes() -> None:
    """Install Roost on Kubernetes, check its permissions, or take it away."""


@kubernetes.command("crds", cls=Verb)
def crds() -> None:
    """Print the custom resource definitions as YAML, ready for kubectl apply."""
    from roost.kubernetes.crds import as_yaml, definitions

    click.echo(as_yaml(definitions()), nl=False)


@kubernetes.command(
    "check",
    cls=Verb,
    epilog="""\b
Examples:
  roost kubernetes check
  roost kubernetes check --user system:serviceaccount:roost-system:roost-operator""",
)
@option("-n", "--namespace", section="Which", default="roost-system", show_default=True)
@option(
    "--user", section="Which", metavar="NAME", help="Ask for somebody else, such as the operator."
)
@click.pass_context
def check(ctx: click.Context, namespace: str, user: str | None) -> None:
    """Say which permissions of the operator the current context lacks; exit 1 if any.

    Where there are objects of Kueue, also what Roost makes of them.
    """
    from roost.kubernetes.crds.audit import kueue_lines, lacking

    missing = _with_api(ctx, lambda api: lacking(api, namespace, user or ""))
    for permission in missing:
        where = f"in namespace {namespace}" if permission.local else "in the whole cluster"
        click.echo(f"lacks  {permission}  {where}")
    for line in _with_api(ctx, kueue_lines):
        click.echo(f"kueue  {line}")
    if missing:
        ctx.exit(1)
    click.echo("nothing is lacking")


@kubernetes.command(
    "release",
    cls=Verb,
    epilog="""\b
Example:
  roost kubernetes release --yes""",
)
@option("-y", "--yes", section="Run", is_flag=True, help="Do not ask.")
@click.pass_context
def release(ctx: click.Context, yes: bool) -> None:  # noqa: FBT001 - click's way
    """Take Roost's finalizers off all objects, and print what is left of Roost.

    For when the operator is gone for good: without it nobody else takes them off, and objects that
    are deleted would stay for ever.
    """
    from roost.cli.connection import agreed
    from roost.kubernetes.crds.audit import left, released

    question = "Take Roost's finalizers off all jobs? Do this when the operator is stopped."
    if not agreed(question, yes=yes, usual=False):
        ctx.exit(1)

    async def act(api: Api) -> tuple[list[str], Counter[str]]:
        return await released(api), await left(api)

    freed, rest = _with_api(ctx, act)
    for name in freed:
        click.echo(f"{name}  released")
    for what, count in sorted(rest.items()):
        click.echo(f"left: {count} {what}")
    if not rest:
        click.echo("nothing is left")


def _with_api(ctx: click.Context, act: Callable[[Api], Awaitable[T]]) -> T:
    """What comes of talking to the cluster of the context that was named, or the current one."""
    try:
        from roost.kubernetes.client.api import Api
    except ModuleNotFoundError as error:
        wanted = "pip install 'roost[kubernetes]'"
        raise InvalidSpec(f"this needs {error.name}, which is missing: {wanted}") from None

    async def talk() -> T:
        context: Any = ctx.find_root().obj
        api = await Api.connect(context=context or "")
        try:
            return await act(api)
        finally:
            await api.close()

    return asyncio.run(talk())
