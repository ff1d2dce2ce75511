"""The portal of a large cluster that does not exist: what viewers cost, how fast lists are."""
