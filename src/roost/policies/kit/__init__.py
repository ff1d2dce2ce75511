"""The tools that policies share."""
