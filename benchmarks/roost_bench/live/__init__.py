"""A real server on this machine, measured from outside."""
