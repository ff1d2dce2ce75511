"""Pods that want to be near others, or far from them, and pods that want to be spread evenly."""

from roost.kubernetes.filters.neighbours.filter import NeighbourFilter as NeighbourFilter
