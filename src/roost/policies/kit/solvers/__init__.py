"""Solvers of the policies that decide about all jobs at once; they see arrays, never jobs.

``programs`` solves linear and integer programs, ``simplex`` one linear program that changes a
little between solutions, ``prices`` a knapsack by prices of GPUs, ``fractions`` Gavel's shares of
time, and ``genetic`` searches over places.
"""
