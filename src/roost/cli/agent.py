"""``roost agent``: the GPUs of one node of a Kubernetes cluster."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from functools import partial
from pathlib import Path
from typing import Any

import click

from roost.cli.parameter_types import Verb, option

_MOST_PLACES = 48  # clients of CUDA MPS on a GPU
_cluster = partial(option, section="Cluster")
_node = partial(option, section="Node")
_run = partial(option, section="Run")


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost agent
  roost agent --node n1 --kubeconfig ~/.kube/config --home /var/lib/roost-agent
  roost agent --split-count 10
  roost agent --slots 4""",
)
@_cluster("--context", default="", metavar="K8S", help="The context of the kubeconfig to use.")
@_cluster(
    "--kubeconfig",
    default="",
    metavar="FILE",
    help="How to reach the cluster.  [default: the pod's own account, else $KUBECONFIG]",
)
@_node(
    "--node",
    default="",
    envvar="ROOST_NODE_NAME",
    metavar="NAME",
    help="What Kubernetes calls this node.  [default: the host's name]",
)
@_node(
    "--kubelet-dir",
    "kubelet",
    default="/var/lib/kubelet",
    show_default=True,
    metavar="DIR",
    help="The folder of the kubelet.",
)
@_node(
    "--resource",
    default="nvidia.com/gpu",
    show_default=True,
    metavar="NAME",
    help="What whole GPUs are counted by.",
)
@_node(
    "--split-count",
    type=click.IntRange(1, _MOST_PLACES),
    default=1,
    show_default=True,
    metavar="N",
    help="So many places on each GPU under that name, for pods that ask as HAMi's do.",
)
@_node(
    "--slots",
    type=click.IntRange(1, 4096),
    default=None,
    metavar="N",
    help="Offer so many CPU slots in place of GPUs, to try it out.",
)
@_run(
    "--home",
    default="/var/lib/roost-agent",
    show_default=True,
    envvar="ROOST_AGENT_HOME",
    metavar="DIR",
    help="Where the agent keeps what the next one has to know.",
)
@_run(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=8613,
    show_default=True,
    metavar="N",
    help="Serve /healthz, /readyz and /metrics there; 0 on none.",
)
@_run(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="How much to write to standard error.",
)
@click.pass_context
def agent(ctx: click.Context, /, **given: Any) -> None:
    """Give out the GPUs of this Kubernetes node, whole and in shares, and hold the shares.

    Runs in the foreground on every node with GPUs, as a DaemonSet. Containers get the devices that
    the scheduler decided. What runs goes on while the agent is replaced.
    """
    given["context"] = given["context"] or ctx.obj or ""
    _check_installed()
    level = getattr(logging, given["log_level"].upper())
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # Absolute, with its links: containers mount parts of it by this name.
    given["home"] = Path(os.path.abspath(given["home"]))  # noqa: PTH100 - see above
    asyncio.run(_attend(given))


def _check_installed() -> None:
    """Say what is missing before anything needs it."""
    try:
        import roost.kubernetes.agent.agent  # noqa: F401 - all that comes with it
    except ModuleNotFoundError as error:
        from roost.errors import InvalidSpec

        wanted = "pip install 'roost[agent]'"
        raise InvalidSpec(f"roost agent needs {error.name}, which is missing: {wanted}") from None


async def _attend(given: dict[str, Any]) -> None:
    from roost.kubernetes.agent.agent import AgentOptions, NodeAgent, find_machine
    from roost.kubernetes.agent.metrics import AgentServer
    from roost.kubernetes.client.api import Api

    options = AgentOptions(
        node=given["node"] or socket.gethostname(),
        home=given["home"],
        kubelet=Path(given["kubelet"]),
        resource=given["resource"],
        split_count=given["split_count"],
        slots=given["slots"],
    )
    machine = await find_machine(options.slots)
    api = await Api.connect(context=given["context"], kubeconfig=given["kubeconfig"], connections=8)
    made = NodeAgent(api, options, machine)
    server = AgentServer(made)
    task = asyncio.create_task(made.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        if given["metrics_port"]:
            await server.start(given["metrics_port"])
        await task
    except asyncio.CancelledError:
        logging.getLogger(__name__).info("told to stop; pods keep their GPUs and go on")
    finally:
        await server.stop()
        await api.close()
