"""Sizing jobs that have parameter servers: how many of them, and how many workers.

``outlook`` says how fast a job would be, ``probing`` finds out where nobody knows, ``marginal``
gives each worker and server to whom it brings most, ``slots`` makes the sizes real, and ``served``
is how our own policy puts them together.
"""
