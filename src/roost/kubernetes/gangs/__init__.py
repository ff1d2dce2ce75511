"""Schedules pods that others made: finds their gangs, seats them, binds them."""
