"""Gavel (OSDI 2020): policies on jobs whose speed depends on the kind of GPU."""
