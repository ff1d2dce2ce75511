"""An operator with Jobs as a process of its own, for tests that kill it."""

from __future__ import annotations

import asyncio
import logging
import sys

from roost.kubernetes.client.api import Api
from roost.kubernetes.jobs.blueprint import Site
from roost.kubernetes.jobs.controller import JobController, JobOptions
from roost.kubernetes.operator.loop import Operator, OperatorOptions
from roost.kubernetes.operator.workload import SourceFactory


async def main(kubeconfig: str) -> None:
    api = await Api.connect(kubeconfig=kubeconfig)
    known = JobOptions(Site("roost-train"))
    opening = SourceFactory(JobController.kinds, lambda context: JobController(context, known))
    options = OperatorOptions(metrics_port=None, lease_s=1.5)
    await Operator(api, options, [opening]).run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(sys.argv[1]))
