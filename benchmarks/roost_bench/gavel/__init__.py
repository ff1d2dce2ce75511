"""Gavel (OSDI 2020): policies on jobs with a speed for each kind of GPU."""
