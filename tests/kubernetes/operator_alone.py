"""An operator with Jobs as a process of its own, for tests that kill it."""

from __future__ import annotations

import asyncio
import logging
import sys

from roost.kubernetes.client.api import Api
from roost.kubernetes.jobs import JobOptions, Jobs
from roost.kubernetes.jobs.building import Site
from roost.kubernetes.operator.loop import Operator, Options
from roost.kubernetes.operator.workload import Opening


async def main(kubeconfig: str) -> None:
    api = await Api.connect(kubeconfig=kubeconfig)
    known = JobOptions(Site(image="roost"))
    opening = Opening(Jobs.kinds, lambda desk: Jobs(desk, known))
    options = Options(metrics_port=None, lease_s=1.5)
    await Operator(api, options, [opening]).run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(sys.argv[1]))
