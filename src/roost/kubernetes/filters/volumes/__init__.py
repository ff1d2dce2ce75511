"""Volumes: where pods can reach theirs, and having those bound that wait for a first consumer."""

from roost.kubernetes.filters.volumes.filter import VolumeFilter as VolumeFilter
