"""The ``roost`` command."""
