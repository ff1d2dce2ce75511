"""Worlds: how fast jobs go, and what becomes of them, while the core decides.

rates      jobs move at a rate that a speed model gives
learning   jobs learn: batches, epochs, gradient noise
"""
