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
    from roost.kubernetes.crds.permissions import ClusterPermission

T = TypeVar("T")


@click.group(
    epilog="""\b
Examples:
  roost kubernetes crds
  roost kubernetes check
  roost kubernetes upgrade --dry-run
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
  roost kubernetes check --user system:serviceaccount:roost-system:roost-operator
  roost kubernetes check --namespaces vision,speech""",
)
@option("-n", "--namespace", section="Which", default="roost-system", show_default=True)
@option(
    "--user", section="Which", metavar="NAME", help="Ask for somebody else, such as the operator."
)
@option(
    "--namespaces",
    section="Which",
    metavar="NAMES",
    default="",
    help="Those that the operator is confined to.  [default: none, it serves all]",
)
@option(
    "--ask-for-nodes",
    section="Which",
    type=click.Choice(["off", "placeholders", "provisioning-requests"]),
    default="off",
    show_default=True,
    help="How the operator is to ask; the kinds that it needs for that are looked for, too.",
)
@click.pass_context
def check(
    ctx: click.Context, namespace: str, user: str | None, namespaces: str, ask_for_nodes: str
) -> None:
    """Say which permissions the operator lacks, and what else is wrong; exit 1 if anything is.

    Permissions are those of the current context, unless --user names somebody. Where there are
    objects of Kueue, it also says what Roost makes of them.
    """
    _needs_extra()
    from roost.kubernetes.administration.checkup import ClusterCheckup, checkup
    from roost.kubernetes.client.kinds import PROVISIONING_REQUESTS
    from roost.kubernetes.crds.audit import kueue_lines, lacking
    from roost.kubernetes.operator.scope import namespaces_of

    served = namespaces_of(namespaces)

    async def act(api: Api) -> tuple[list[ClusterPermission], ClusterCheckup]:
        return await lacking(api, namespace, user or "", served), await checkup(api, namespace)

    missing, found = _with_api(ctx, act)
    if ask_for_nodes == "provisioning-requests":
        kind = PROVISIONING_REQUESTS
        if not _with_api(ctx, lambda api: api.discover(kind)):
            named = f"{kind.resource}/{kind.version}"
            click.echo(f"note   the cluster has no {named}: Jobs will ask by placeholders")
    for permission in missing:
        place = namespace if permission.local else permission.namespace
        where = f"in namespace {place}" if place else "in the whole cluster"
        click.echo(f"lacks  {permission}  {where}")
    for line in _with_api(ctx, kueue_lines):
        click.echo(f"kueue  {line}")
    for fault in found.faults:
        click.echo(f"wrong  {fault}")
    if found.unseen:
        click.echo(f"not looked at, for want of permission: {', '.join(found.unseen)}", err=True)
    if missing or found.faults:
        ctx.exit(1)
    click.echo("nothing is lacking")


@kubernetes.command(
    "upgrade",
    cls=Verb,
    epilog="""\b
Examples:
  roost kubernetes upgrade --dry-run
  roost kubernetes upgrade""",
)
@option(
    "--dry-run", section="Run", is_flag=True, help="Say what would be changed, and change it not."
)
@option("--force", section="Run", is_flag=True, help="Also where objects lose fields by it.")
@click.pass_context
def upgrade(ctx: click.Context, dry_run: bool, force: bool) -> None:  # noqa: FBT001 - click's way
    """Bring the definitions of a cluster to those of this version, up or down.

    Objects stay. What they have stored in an older version is stored anew, and a field that an
    object uses is not taken away.
    """
    _needs_extra()
    from roost.kubernetes.administration.installed import DefinitionUpgrade
    from roost.kubernetes.crds import definitions

    async def act(api: Api) -> None:
        for wanted in definitions():
            one = DefinitionUpgrade(api, wanted)
            async for line in one.run(is_rehearsal=dry_run, is_forced=force):
                click.echo(line)

    _with_api(ctx, act)


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


def _needs_extra() -> None:
    """Say what is missing before anything needs it."""
    try:
        import roost.kubernetes.client.api  # noqa: F401 - all that comes with it
    except ModuleNotFoundError as error:
        wanted = "pip install 'roost[kubernetes]'"
        raise InvalidSpec(f"this needs {error.name}, which is missing: {wanted}") from None


def _with_api(ctx: click.Context, act: Callable[[Api], Awaitable[T]]) -> T:
    """What comes of talking to the cluster of the context that was named, or the current one."""
    _needs_extra()
    from roost.kubernetes.client.api import Api

    async def talk() -> T:
        context: Any = ctx.find_root().obj
        api = await Api.connect(context=context or "")
        try:
            return await act(api)
        finally:
            await api.close()

    return asyncio.run(talk())
