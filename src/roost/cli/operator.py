"""``roost operator``: Roost on a Kubernetes cluster."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from roost.cli.options import complete_placers, complete_policies
from roost.cli.parameter_types import Duration, Verb, option

if TYPE_CHECKING:
    from roost.kubernetes.client.api import Api
    from roost.kubernetes.client.api_thread import ApiThread
    from roost.kubernetes.operator.loop import Operator, OperatorOptions

#: New objects until the garbage collector runs. A burst of pods makes many that live on, and each
#: time it walks much of what is mirrored, which took the operator about a tenth of its time.
_COLLECT = (50_000, 10, 10)
#: A third of it is left for a renewal that is under way.
_SHORTEST_LEASE_S = 2.0
_PORT: dict[str, Any] = {"type": click.IntRange(0, 65535), "show_default": True, "metavar": "N"}
_cluster = partial(option, section="Cluster")
_policy = partial(option, section="Policy")
_run = partial(option, section="Run")


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost operator
  roost operator --context kind-lab --namespace roost-system
  roost operator --policy tiresias --placer topology
  roost operator --namespaces vision,speech
  roost operator --metrics-port 0 --identity desk""",
)
@_cluster("--context", default="", metavar="K8S", help="The context of the kubeconfig to use.")
@_cluster(
    "--kubeconfig",
    default="",
    metavar="FILE",
    help="How to reach the cluster.  [default: the pod's own account, else $KUBECONFIG]",
)
@_cluster(
    "-n",
    "--namespace",
    default="",
    envvar="ROOST_POD_NAMESPACE",
    metavar="NAME",
    help="The operator's own namespace, where its lease is.  [default: of the context]",
)
@_cluster(
    "--namespaces",
    default="",
    envvar="ROOST_NAMESPACES",
    metavar="NAMES",
    help="Serve only these, with commas between them.  [default: all]",
)
@_policy(
    "--policy",
    default="priority",
    show_default=True,
    metavar="NAME",
    shell_complete=complete_policies,
    help="Which job runs next; see roost policies.",
)
@_policy(
    "--placer",
    default="topology",
    show_default=True,
    metavar="NAME",
    shell_complete=complete_placers,
    help="Where gangs go; see roost placers.",
)
@_cluster(
    "--scheduler-name",
    "scheduler",
    default="roost",
    show_default=True,
    metavar="NAME",
    help="Pods ask for Roost by this schedulerName.",
)
@_run(
    "--lease-name",
    default="roost-operator",
    show_default=True,
    metavar="NAME",
    help="Who holds it leads.",
)
@_run(
    "--lease",
    "lease_s",
    type=Duration(),
    default="15s",
    show_default=True,
    help="How long it takes until another replica leads in place of one that is gone.",
)
@_run(
    "--identity",
    default="",
    envvar="ROOST_POD_NAME",
    metavar="NAME",
    help="What this replica is called in the lease.  [default: the host's name]",
)
@_run("--metrics-port", default=8612, help="Serve /healthz, /readyz and /metrics there.", **_PORT)
@_run("--meeting-port", default=8611, help="Elastic jobs meet there.", **_PORT)
@_run(
    "--meeting-address",
    "meeting",
    default="",
    envvar="ROOST_MEETING_ADDRESS",
    metavar="URL",
    help="Where pods reach that port.  [default: the Service of the operator]",
)
@_run(
    "--train-image",
    default="",
    envvar="ROOST_TRAIN_IMAGE",
    metavar="NAME",
    help="The image that elastic jobs take roost.train from.  [default: the job's own]",
)
@_cluster(
    "--ask-for-nodes",
    type=click.Choice(["off", "placeholders", "provisioning-requests"]),
    default="off",
    show_default=True,
    envvar="ROOST_ASK_FOR_NODES",
    help="How Jobs that wait for room let an autoscaler make nodes.",
)
@_cluster(
    "--provisioning-class",
    default="best-effort-atomic-scale-up",
    show_default=True,
    envvar="ROOST_PROVISIONING_CLASS",
    metavar="NAME",
    help="The class of their ProvisioningRequests; check-capacity adds no nodes.",
)
@_run(
    "--connections",
    type=click.IntRange(4, 1024),
    default=64,
    show_default=True,
    metavar="N",
    help="Requests to the API server at a time.",
)
@_run(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="How much to write to standard error.",
)
@click.pass_context
def operator(ctx: click.Context, /, **given: Any) -> None:
    """Schedule a Kubernetes cluster: gangs of pods, and Roost's own Jobs.

    Runs in the foreground until it is told to stop. Of several replicas one leads; the others take
    over when it is gone. Pods ask for Roost with schedulerName: roost.
    """
    from roost import placement, policies

    # Names are checked before anything connects: a wrong one ends here with a sentence.
    policies.policy(given["policy"])
    placement.placer(given["placer"])
    given["context"] = given["context"] or ctx.obj or ""
    if given["lease_s"] < _SHORTEST_LEASE_S:
        raise click.BadParameter(
            f"a lease of less than {_SHORTEST_LEASE_S:g}s is lost whenever the API server is slow",
            param_hint="'--lease'",
        )
    _check_installed()
    from roost.kubernetes.operator.scope import namespaces_of

    given["namespaces"] = namespaces_of(given["namespaces"])
    level = getattr(logging, given["log_level"].upper())
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    gc.set_threshold(*_COLLECT)
    asyncio.run(_operate(given))


def _check_installed() -> None:
    """Say what is missing before anything needs it."""
    try:
        import roost.kubernetes.client.api  # noqa: F401 - all that comes with it
    except ModuleNotFoundError as error:
        from roost.errors import InvalidSpec

        wanted = "pip install 'roost[kubernetes]'"
        raise InvalidSpec(
            f"roost operator needs {error.name}, which is missing: {wanted}"
        ) from None


async def _operate(given: dict[str, Any]) -> None:
    from roost.kubernetes.client.api import Api
    from roost.kubernetes.client.api_thread import ApiThread

    way = {"context": given["context"], "kubeconfig": given["kubeconfig"]}
    async with AsyncExitStack() as stack:
        api = await Api.connect(**way, connections=given["connections"])
        stack.push_async_callback(api.close)
        beside = await ApiThread.open(lambda: Api.connect(**way, connections=1))
        stack.push_async_callback(beside.close)
        # Cancelling is the way out of run(): its finally blocks stop the leader and the mirrors.
        # A handler of the loop runs between two callbacks, never in the middle of one.
        task = asyncio.create_task(_made(api, beside, given).run())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            logging.getLogger(__name__).info("told to stop; what runs goes on")


def _made(api: Api, beside: ApiThread, given: dict[str, Any]) -> Operator:
    from roost.kubernetes.jobs.blueprint import Site
    from roost.kubernetes.jobs.controller import JobController, JobOptions
    from roost.kubernetes.operator.loop import Operator
    from roost.kubernetes.operator.workload import SourceFactory

    options = _options(api, given)
    asks = given["ask_for_nodes"]
    by_class = given["provisioning_class"] if asks == "provisioning-requests" else ""
    meeting = _meeting(given, options)
    site = Site(given["train_image"], meeting, options.scheduler, provisioning=by_class)
    jobs = JobOptions(site, options.placer, given["meeting_port"], asks != "off")
    # Also those are seen, and withdrawn, that were made while another way was chosen.
    kinds = (*JobController.kinds, *JobController.asking_kinds)
    return Operator(
        api,
        options,
        [SourceFactory(kinds, lambda context: JobController(context, jobs))],
        beside,
    )


def _options(api: Api, given: dict[str, Any]) -> OperatorOptions:
    from roost.kubernetes.operator.loop import OperatorOptions

    names = (
        "policy",
        "placer",
        "lease_name",
        "scheduler",
        "connections",
        "metrics_port",
        "lease_s",
        "namespaces",
    )
    return OperatorOptions(
        **{name: given[name] for name in names},
        namespace=given["namespace"] or api.namespace,
        # In a pod the host's name is the pod's, which no other replica has.
        identity=given["identity"] or socket.gethostname(),
        pod=os.environ.get("ROOST_POD_NAME", "") if _in_cluster() else "",
    )


def _meeting(given: dict[str, Any], options: OperatorOptions) -> str:
    """Where pods reach the meeting: a Service in a cluster, else this machine."""
    if given["meeting"]:
        return str(given["meeting"])
    # The manifests give the Service and the lease the same name.
    host = f"{options.lease_name}.{options.namespace}.svc" if _in_cluster() else "127.0.0.1"
    return f"http://{host}:{given['meeting_port']}"


def _in_cluster() -> bool:
    """Whether this process runs in a pod."""
    return "KUBERNETES_SERVICE_HOST" in os.environ
