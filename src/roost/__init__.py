"""Roost, a deep-learning cluster manager: one scheduling core in three worlds."""

__version__ = "0.1.0"
