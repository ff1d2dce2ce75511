"""Reads the objects of an API server: pods, nodes, what they need and what they offer."""
