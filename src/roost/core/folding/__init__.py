"""How events change the state: one module per group of events."""
