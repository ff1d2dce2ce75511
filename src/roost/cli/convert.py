"""``roost convert``: a job file of another system, as one of Roost's."""

from __future__ import annotations

import sys

import click

from roost.cli.parameter_types import Verb


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost convert pytorchjob.yaml
  roost convert train.sbatch""",
)
@click.argument("file", type=click.Path())
def convert(file: str) -> None:
    """Print the job in FILE as a job file; what could not be converted is told on standard error.

    Reads OpenPAI jobs, PyTorchJob, TFJob, MPIJob and TrainJob of Kubeflow, scripts with #SBATCH
    headers, and Roost's own; - is standard input.
    """
    from roost.client.formatting import clean
    from roost.files import load
    from roost.jobfile import to_yaml
    from roost.jobfile.parse import parse

    text = sys.stdin.read() if file == "-" else load(file).text
    parsed = parse(text, "standard input" if file == "-" else file)
    for note in parsed.notes:
        click.echo(f"note: {clean(note)}", err=True)
    click.echo(to_yaml(parsed.job), nl=False)
