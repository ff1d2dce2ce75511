"""Roost Jobs on Kubernetes: objects of kind Job, made of pods that the operator makes itself.

asked        a Job object as the operator reads it
found        what a new leader finds of one: its status and its pods
workload     one Job between its object, its pods and the core
generation   one start of a run: its pods; ``making``: requests that may be made twice;
             ``ends``: how pods stand
statuses     what is said of Jobs, on its way to the API server
queues       what ClusterQueues promise; ``queue_status``: what queues say of themselves
source       all of it together, as the loop wants it
"""

from roost.kubernetes.jobs.controller import JobController, JobOptions

__all__ = ["JobController", "JobOptions"]
