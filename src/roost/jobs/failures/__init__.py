"""Understands why a run ended: kinds of failure, how a log shows them, which device is bad."""
