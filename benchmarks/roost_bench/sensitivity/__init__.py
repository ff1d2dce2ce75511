"""One condition of a benchmark is varied, to see how much its result depends on it."""
