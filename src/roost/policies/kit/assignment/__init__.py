"""Deciding about all jobs at once: choosing a size on a kind for each, and making it real.

``programs`` and ``revised`` are linear and integer programs, ``choosing`` a search by prices;
``configurations`` are the sizes that are offered. ``assign`` brings jobs to where they are wished
to be, with ``packing`` for the places and ``stepping`` for those who have to leave first.
"""
