"""Roost's own objects on Kubernetes: their definitions, and Jobs from and to job files."""

from roost.kubernetes.crds.conversion import (
    cluster_queue_object,
    is_suspended,
    job_file,
    job_object,
    parcels_of,
    pod_of,
    queue_spec,
    secrets_name,
    ttl_s,
    wanted_replicas,
)
from roost.kubernetes.crds.definitions import as_yaml, definitions
from roost.kubernetes.crds.fields import MAX_NAME

__all__ = [
    "MAX_NAME",
    "as_yaml",
    "cluster_queue_object",
    "definitions",
    "is_suspended",
    "job_file",
    "job_object",
    "parcels_of",
    "pod_of",
    "queue_spec",
    "secrets_name",
    "ttl_s",
    "wanted_replicas",
]
