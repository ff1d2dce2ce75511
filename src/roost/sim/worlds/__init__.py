"""Worlds: how fast jobs go, and what becomes of them, while the core decides.

rates               jobs move at a rate that a speed model gives
learning            jobs learn: batches, epochs, gradient noise
parameter_servers   workers and parameter servers that share network cards
"""
