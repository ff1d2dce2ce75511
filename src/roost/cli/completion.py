"""``roost completion``: the script that completes words in a shell."""

from __future__ import annotations

import click

from roost.cli.parameter_types import Verb


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost completion bash
  roost completion fish

\b
Where shells look for it:
  bash  ~/.local/share/bash-completion/completions/roost
  zsh   a file _roost in a folder of $fpath
  fish  ~/.config/fish/completions/roost.fish""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    Words, options, policies and states are always completed; jobs, queues and nodes where a
    server answers at once.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:  # what click does not know, the choice above does not offer
        raise AssertionError(shell)
    click.echo(kind(ctx.find_root().command, {}, "roost", "_ROOST_COMPLETE").source())
