"""Claims of devices: dynamic resource allocation, as kube-scheduler has it."""

from roost.kubernetes.filters.claims.filter import KINDS as KINDS
from roost.kubernetes.filters.claims.filter import ClaimsFilter as ClaimsFilter
