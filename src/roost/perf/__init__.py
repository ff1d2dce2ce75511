"""Performance models: how fast a job goes on what it was given."""
