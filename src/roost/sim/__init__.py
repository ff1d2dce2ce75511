"""The simulator: the core in virtual time, with the truth that policies do not see."""
